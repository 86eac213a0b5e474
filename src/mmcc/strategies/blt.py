"""stub"""
from mmcc.strategies.toeplitz import Toeplitz
class Blt(Toeplitz):
    pass
