// Steps: the list of steps, the controls, the step that is looked at, and the keys that go from one to the next.

const root = document.getElementById("walk");
const wide = matchMedia("(min-width: 62rem)");
const said = root.parentElement.appendChild(el("p", { class: "unseen", role: "status" }));
let views = [], tellers = [], parts = {};

// All steps of all towers in their order, each tower's by way of the layer that is looked at.
const everyStep = () =>
  DATA.towers.flatMap(({ before, plans, layers, after }, which) =>
    [...before, ...plans[layers[state.own[which].layer]], ...after].map((one, i) => ({ one, which, i })),
  );
const position = () => everyStep().findIndex(({ which, i }) => which === state.tower && i === state.step);

const go = (i, which = state.tower) => {
  Object.assign(state, { tower: which, step: i });
  begin();
  show();
  said.textContent = `${position() + 1}. ${say(step().title)}`;
  const article = root.querySelector("article");
  if (article.getBoundingClientRect().top < 0) article.scrollIntoView();
};
const goBy = (by) => {
  const next = everyStep()[position() + by];
  if (next) go(next.i, next.which);
};

// Another layer, head or token; the step stays the same one, where that layer has it.
const choose = (name, value) => {
  const was = step().name;
  own()[name] = value;
  if (name === "layer") {
    const same = stepsHere().findIndex((one) => one.name === was);
    state.step = same >= 0 ? same : Math.min(state.step, stepsHere().length - 1);
  }
  begin();
  show();
};
const COUNTS = { layer: () => tower().layers.length, h: () => tower().heads, p: () => tower().tokens.length };
const chooseNext = (name, by) => choose(name, (own()[name] + by + COUNTS[name]()) % COUNTS[name]());

// What changes with a choice within the step; nothing is made anew, so that the focus stays where it is.
const refresh = () => {
  views.forEach(({ update }) => update());
  tellAll();
  for (const [name, field] of Object.entries(parts.selects)) field.value = String(own()[name]);
};
const tellAll = () => tellers.forEach((tell) => tell());

const teller = (element, text) => {
  const tell = () => (element.textContent = text());
  tellers.push(tell);
  return element;
};

const control = (name, label, key, names) => {
  const field = el("select", { onchange: () => choose(name, Number(field.value)) });
  field.append(...names.map((text, i) => el("option", { value: i }, text)));
  field.value = String(own()[name]);
  parts.selects[name] = field;
  return el("label", {}, el("span", {}, say(label), " ", el("kbd", {}, key)), field);
};

const controls = () => {
  parts.selects = {};
  const many = (n) => Array.from({ length: n }, (_, i) => String(i));
  return el("div", { class: "controls" },
    control("layer", "layer", "L", many(tower().layers.length)),
    control("h", "head", "H", many(tower().heads)),
    control("p", "position", "T", tower().tokens.map((token, i) => `${i} ${token}`)),
    stepper(),
  );
};

const list = () => {
  const holder = el("ol");
  const heading = (text, strong) =>
    holder.append(el("li", { class: "heading" }, text ? el("span", {}, text) : "", strong ? el("b", {}, strong) : ""));
  let group = "";
  everyStep().forEach(({ one, which, i }, count) => {
    const { name, before, layers } = DATA.towers[which];
    if (i === 0 && DATA.towers.length > 1) heading("", say(name));
    if (i === before.length) heading(say("layer_of", { layer: state.own[which].layer, layers: layers.length }), "");
    if (one.group && one.group !== group) heading("", say(one.group));
    if (!one.group && group) heading("", "");
    group = one.group;
    const here = which === state.tower && i === state.step;
    const button = el("button", { type: "button", onclick: () => go(i, which), "aria-current": here ? "step" : null },
      el("i", {}, String(count + 1)), say(one.title));
    holder.append(el("li", { class: one.lane }, button));
  });
  return holder;
};

const checked = (off) => (off === 0 ? say("checked_equal") : say("checked", { off: number(off) }));

const formulas = () =>
  step().formulas.length
    ? el("section", { class: "formulas card" },
        el("h3", {}, say("formula")),
        teller(el("p", { class: "of" }), () => {
          const found = new Set(step().formulas.flatMap((one) => [...variablesOf(one.slots)]));
          return ["layer", "h", "p", "k", "d", "e", "i", "j"]
            .filter((name) => found.has(name))
            .map((name) => {
              const tokens = name === "k" ? seen().tokens : tower().tokens;
              return say(`of_${name}`, { value: variable(name), token: tokens[variable(name)] });
            })
            .join(" · ");
        }),
        ...step().formulas.map((one) =>
          el("div", { class: "formula" },
            el("p", { class: "symbols" }, one.symbols),
            one.filled ? teller(el("p", { class: "filled" }), () => formula(one)) : "",
          ),
        ),
        step().check ? el("p", { class: "checked" }, checked(at(`${step().check}[]`))) : "",
      )
    : "";

const stepper = () => {
  const [now, total] = [position(), everyStep().length];
  return el("div", { class: "stepper" },
    el("button", { type: "button", onclick: () => goBy(-1), disabled: now === 0 }, "← ", say("previous")),
    el("button", { type: "button", class: "next", onclick: () => goBy(1), disabled: now === total - 1 }, say("next"), " →"),
  );
};

const COLOURED = ["vector", "rows", "grid", "bars"];

const article = () => {
  const one = step();
  const where = [
    say("step", { number: position() + 1, total: everyStep().length }),
    DATA.towers.length > 1 ? say(tower().name) : "",
    one.group ? say("layer_number", { layer: own().layer }) : "",
    one.group ? say(one.group) : "",
  ];
  views = one.views.map((view) => VIEWS[view.kind](view));
  return el("article", {},
    el("p", { class: "where" }, where.filter(Boolean).join(" · ")),
    el("h2", { tabindex: -1 }, say(one.title)),
    ...one.says.map((key) => el("p", { class: "says" }, sentence(key, one.slots))),
    ...one.found.map((key) => teller(el("p", { class: "found" }), () => sentence(key, one.slots))),
    formulas(),
    el("section", { class: "views" }, ...views.map(({ figure }) => figure)),
    one.views.some(({ kind, scale }) => scale === "signed" && COLOURED.includes(kind))
      ? el("p", { class: "colours" }, say("colours"))
      : "",
  );
};

const folded = (name, key, content) =>
  el("details", { class: name, open: wide.matches }, el("summary", {}, say(key)), content);

// Scroll a list so that its current part is in the middle of what can be seen of it.
const centre = (holder, current) => {
  const { top } = holder.getBoundingClientRect();
  const height = Math.min(holder.clientHeight, innerHeight - Math.max(0, top));
  const here = holder.querySelector(current).getBoundingClientRect();
  holder.scrollTop += here.top - top - height / 2;
};

const show = () => {
  const kept = document.activeElement?.closest?.("#walk .controls, #walk .steps");
  const which = kept ? [...kept.querySelectorAll("button, select")].indexOf(document.activeElement) : -1;
  tellers = [];
  const drawing = el("div", { class: "held" });
  drawing.addEventListener("click", (event) => {
    const box = event.target.closest("[data-step]");
    if (box) go(Number(box.dataset.step));
  });
  root.replaceChildren(
    folded("steps", "steps", list()),
    el("div", { class: "middle" }, controls(), article(), el("p", { class: "keyboard" }, say("keyboard"))),
    folded("drawing", "drawing", drawing),
  );
  views.forEach(({ update }) => update());
  tellAll();
  draw(drawing);
  centre(root.querySelector(".steps ol"), "[aria-current]");
  centre(drawing, ".here");
  if (which >= 0) root.querySelector(`.${kept.className.split(" ")[0]}`).querySelectorAll("button, select")[which]?.focus();
};

const KEYS = {
  ArrowRight: () => goBy(1), ArrowLeft: () => goBy(-1),
  l: () => chooseNext("layer", 1), L: () => chooseNext("layer", -1),
  h: () => chooseNext("h", 1), H: () => chooseNext("h", -1),
  t: () => chooseNext("p", 1), T: () => chooseNext("p", -1),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("select, input")) return;
  if (!KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
document.addEventListener("language", show);
wide.addEventListener("change", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
addEventListener("resize", () => views.forEach(({ update }) => update()));
begin();
show();
