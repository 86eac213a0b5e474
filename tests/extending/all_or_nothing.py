from math import expm1, inf, log1p

from mmcc.accounting import PLAIN, Answer, Bound, Cost


class AllOrNothing(Bound):
    name = "all-or-nothing"

    def refusal(self, problem):
        return None if problem.chance < 1 else "everyone takes part."

    def cost(self, problem):
        return Cost.FREE

    def epsilon(self, problem, delta):
        plain = PLAIN.epsilon(problem, min(delta / problem.chance * (1 - 1e-12), 0.9)).value
        found = log1p(problem.chance * expm1(plain)) * (1 + 1e-12) if plain < 700 else inf
        return Answer(found, found)

    def delta(self, problem, epsilon):
        plain = log1p(expm1(min(epsilon, 700)) / problem.chance) * (1 - 1e-12)
        found = min(problem.chance * PLAIN.delta(problem, plain).value * (1 + 1e-12), 1.0)
        return Answer(found, found)
