// What happens in the page alone: sliders and fields move each other, texts are copied, and a page
// that waits for an answer asks again.
(function () {
    "use strict";

    // A number of at most three digits; steps are whole.
    function written(name, value) {
        return String(name === "steps" ? Math.round(value) : Number(value.toPrecision(3)));
    }

    function parsed(text) {
        const parts = String(text).split("/");
        return parts.length === 2 ? Number(parts[0]) / Number(parts[1]) : Number(text);
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        explore: {
            // The one that was moved sets the other.
            follow: function (text, notch, name, low, high, notches) {
                const keep = window.dash_clientside.no_update;
                const moved = window.dash_clientside.callback_context.triggered_id;
                const span = Math.log(high / low);
                if (moved === name + "-slider") {
                    return [written(name, low * Math.exp(span * Number(notch) / notches)), keep];
                }
                const value = parsed(text);
                if (!(value > 0)) {
                    return [keep, keep];
                }
                const place = Math.round(notches * Math.log(value / low) / span);
                return [keep, Math.min(Math.max(place, 0), notches)];
            },
            // Dash calls its radio buttons a list box without a name; say what they are.
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
