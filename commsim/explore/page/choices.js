"use strict";
/* The controls: each offers the values that the server named, and keeps the place of the chosen one. */

const Choices = {
  all: new Map(),

  build(form, controls, changed) {
    let group = null, name = "";
    for (const control of controls) {
      if (control.group !== name) {
        name = control.group;
        group = make("fieldset", "", form);
        make("legend", "", group, name);
      }
      Choices.all.set(control.key, Choices.one(group, control, changed));
    }
    Choices.idle();
  },

  one(group, control, changed) {
    const row = make("div", `control ${control.look}`, group), id = `c-${control.key}`;
    row.dataset.key = control.key;
    const label = make("label", "", row, control.label);
    label.htmlFor = id;
    if (control.hint) row.title = control.hint;
    const made = { control, row, at: Choices.place(control, control.value) };
    if (control.look === "list") {
      made.input = make("select", "", row);
      control.values.forEach(([, text], at) => { make("option", "", made.input, text).value = at; });
    } else {
      made.input = make("input", "", row);
      made.input.type = control.look === "switch" ? "checkbox" : "range";
    }
    made.input.id = id;
    if (control.look === "slider") {
      Object.assign(made.input, { min: 0, max: control.values.length - 1, step: 1 });
      made.output = make("output", "", row);
      made.output.htmlFor = id;
    }
    made.error = make("p", "error", row);
    made.error.id = `${id}-error`;
    made.error.hidden = true;
    made.input.setAttribute("aria-describedby", made.error.id);
    made.input.addEventListener("input", () => {
      Choices.touched = control.key;
      made.at = control.look === "switch" ? Number(made.input.checked) : Number(made.input.value);
      Choices.show(made);
      Choices.idle();
      changed();
    });
    Choices.show(made);
    return made;
  },

  place: (control, value) => Math.max(0, control.values.findIndex(([one]) => one === value)),

  show(made) {
    const { control, input, at } = made;
    if (control.look === "switch") input.checked = Boolean(control.values[at][0]);
    else input.value = at;
    if (made.output) { made.output.value = control.values[at][1]; input.setAttribute("aria-valuetext", control.values[at][1]); }
    made.row.classList.toggle("changed", control.values[at][0] !== control.value);
  },

  value: key => { const made = Choices.all.get(key); return made ? made.control.values[made.at][0] : undefined; },
  text: key => { const made = Choices.all.get(key); return made ? made.control.values[made.at][1] : ""; },

  /* A control that another one gives its meaning rests while that one is at 1. */
  idle() {
    const model = Choices.all.get("model");
    for (const made of Choices.all.values()) {
      const needs = made.control.needs;
      if (!needs) continue;
      const idle = needs === "experts" ? Boolean(model) && !Choices.experts.includes(Choices.value("model")) : Choices.value(needs) === 1;
      made.input.disabled = idle;
      made.row.classList.toggle("rests", idle);
    }
  },
  experts: [],
  touched: "",

  /* What differs from the scenario as it was given. */
  chosen() {
    const found = {};
    for (const [key, made] of Choices.all) {
      const value = made.control.values[made.at][0];
      if (value !== made.control.value && !made.input.disabled) found[key] = value;
    }
    return found;
  },

  set(values) {
    for (const [key, made] of Choices.all) {
      const value = key in values ? values[key] : made.control.value;
      made.at = Choices.place(made.control, value);
      if (made.control.values[made.at][0] !== value) made.at = Choices.place(made.control, made.control.value);
      Choices.show(made);
    }
    Choices.idle();
  },

  /* Puts an error beside the control that it is about: of several, the one that was touched last. */
  blame(keys, message) {
    const key = keys.includes(Choices.touched) ? Choices.touched : keys[0];
    for (const [name, made] of Choices.all) {
      const mine = message !== "" && name === key;
      made.error.hidden = !mine;
      made.error.textContent = mine ? message : "";
      made.row.classList.toggle("wrong", mine);
      made.input.setAttribute("aria-invalid", String(mine));
    }
  },
};
