// What happens within the page: sliders and fields set each other, texts are copied, a page that
// waits for an answer asks again, and texts for other values than the present ones are hidden.
(function () {
    "use strict";

    // A number with at most three digits; steps are whole numbers.
    function written(name, value) {
        return String(name === "steps" ? Math.round(value) : Number(value.toPrecision(3)));
    }

    function parsed(text) {
        const parts = String(text).split("/");
        return parts.length === 2 ? Number(parts[0]) / Number(parts[1]) : Number(text);
    }

    const SILENCE = "No answer from the server; is `mmcc explore` still running?";
    const PATIENCE = 15000; // milliseconds without an answer for the present values
    const awaited = {}; // values set by a slider, until its field shows them
    let asked = ""; // the values of the controls at the last check ...
    let since = 0; // ... and since when they have been the same
    let overdue = false;

    function held(name) {
        const field = document.getElementById(name);
        if (field.classList.contains("choices")) {
            return (field.querySelector("input:checked") || {}).value;
        }
        if (awaited[name] === field.value) {
            delete awaited[name];
        }
        return name in awaited ? awaited[name] : field.value;
    }

    function isCurrent(stamp) {
        if (!stamp) {
            return false;
        }
        return Object.entries(JSON.parse(stamp)).every(function (entry) {
            return String(entry[1] === null ? "" : entry[1]) === held(entry[0]);
        });
    }

    function say(problem) {
        window.dash_clientside.set_props("problem", { children: problem });
    }

    // The address holds the values of the controls, so that it can be sent to someone.
    const opened = new URLSearchParams(window.location.hash.slice(1));
    let restored = false;
    let aside = [];

    function current() {
        const found = {};
        document.querySelectorAll("aside .choices").forEach(function (group) {
            found[group.id] = held(group.id);
        });
        document.querySelectorAll("aside input.typed, aside .typed input").forEach(function (field) {
            const away = field.closest(".field").classList.contains("away");
            if (!away) {
                found[field.id] = held(field.id);
            }
        });
        return found;
    }

    function restore() {
        restored = true;
        const kept = opened.getAll("kept").map(function (text) {
            return Object.fromEntries(new URLSearchParams(text));
        });
        opened.delete("kept");
        opened.forEach(function (value, name) {
            if (document.querySelector("aside #" + CSS.escape(name))) {
                window.dash_clientside.set_props(name, { value: value });
            }
        });
        if (kept.length) {
            window.dash_clientside.set_props("aside", { data: kept });
        }
    }

    function write() {
        if (!restored) {
            restore();
            return;
        }
        const address = new URLSearchParams(current());
        aside.forEach(function (one) {
            address.append("kept", new URLSearchParams(one).toString());
        });
        if (window.location.hash.slice(1) !== address.toString()) {
            window.history.replaceState(null, "", "#" + address.toString());
        }
    }

    // Hide every text that is for other values than the present ones of the controls.
    function judge() {
        const texts = document.querySelectorAll("[data-stamp]");
        if (!texts.length) {
            return;
        }
        let waiting = false;
        write();
        texts.forEach(function (text) {
            if (text.offsetParent === null) {
                return; // it belongs to the other mode
            }
            const stale = !isCurrent(text.dataset.stamp);
            const button = document.getElementById(text.id + "-copy");
            waiting = waiting || stale;
            text.classList.toggle("stale", stale);
            if (button) {
                button.disabled = stale;
            }
        });
        const now = JSON.stringify(Array.from(document.querySelectorAll("aside input"), function (input) {
            return input.type === "radio" ? input.checked : input.value;
        }));
        if (waiting && now === asked) {
            if (!overdue && Date.now() - since > PATIENCE) {
                overdue = true;
                say(SILENCE);
            }
            return;
        }
        if (overdue && !waiting) {
            say("");
        }
        overdue = false;
        asked = now;
        since = Date.now();
    }

    // Dash reports a value when typing pauses; here every keystroke counts.
    ["input", "change"].forEach(function (kind) {
        document.addEventListener(kind, function (event) {
            delete awaited[event.target.id];
            judge();
        }, true);
    });
    new MutationObserver(judge).observe(document, {
        attributes: true, attributeFilter: ["data-stamp"], childList: true, subtree: true,
    });
    window.setInterval(judge, 500);

    // Dash does not report that a request failed.
    const plainFetch = window.fetch;
    window.fetch = function (target) {
        const answer = plainFetch.apply(this, arguments);
        if (String(target.url || target).includes("_dash-update-component")) {
            answer.then(
                function (response) { return response.ok || say(SILENCE); },
                function () { say(SILENCE); }
            );
        }
        return answer;
    };

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        explore: {
            // A slider or field that was changed sets the other.
            follow: function (text, notch, name, low, high, notches) {
                const keep = window.dash_clientside.no_update;
                const moved = window.dash_clientside.callback_context.triggered_id;
                const span = Math.log(high / low);
                if (moved === name + "-slider") {
                    const set = written(name, low * Math.exp(span * Number(notch) / notches));
                    awaited[name] = set;
                    judge();
                    return [set, keep];
                }
                const value = parsed(text);
                if (!(value > 0)) {
                    return [keep, keep];
                }
                const place = Math.round(notches * Math.log(value / low) / span);
                return [keep, Math.min(Math.max(place, 0), notches)];
            },
            judge: function () { judge(); },
            // Keep the present mechanism in the comparison, or forget all that were kept.
            set_aside: function (keep, clear, kept) {
                if (window.dash_clientside.callback_context.triggered_id === "clear") {
                    return [];
                }
                return (kept || []).concat([current()]);
            },
            remember: function (kept, mode) {
                aside = kept || [];
                document.body.dataset.mode = mode;
                judge();
            },
            wait_compared: function (unfinished) {
                if (unfinished) {
                    window.setTimeout(function () {
                        window.dash_clientside.set_props("compared-again", { data: Date.now() });
                    }, 30);
                }
            },
            // Dash marks its radio buttons as a list box without a name: give them their role.
            name_choices: function () {
                document.querySelectorAll(".choices").forEach(function (group) {
                    group.setAttribute("role", "radiogroup");
                    group.setAttribute("aria-labelledby", group.id + "-title");
                    group.querySelectorAll("label").forEach(function (label) {
                        label.removeAttribute("role");
                        label.removeAttribute("aria-selected");
                    });
                });
            },
            // Ask again until everything is known.
            wait: function (unfinished) {
                if (unfinished) {
                    window.setTimeout(function () {
                        window.dash_clientside.set_props("again", { data: Date.now() });
                    }, 30);
                }
            },
            copy: function (clicks, text) {
                if (!clicks) {
                    return window.dash_clientside.no_update;
                }
                return navigator.clipboard.writeText(text).then(
                    function () { return "Copied"; },
                    function () { return "Select it and copy"; }
                );
            },
        },
    });
})();
