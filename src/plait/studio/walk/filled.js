// Filled: sentences and formulas with their values, as a person reads numbers; filled.py does the same in Python.

const say = (key, fields = {}) =>
  DATA.words[key][document.documentElement.lang].replace(/\{(\w+)\}/g, (_, name) => fields[name]);

const minus = (text) => text.replaceAll("-", "−");

// Four digits that count; very small and very large ones by powers of ten.
const number = (value) => {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const large = Math.abs(value);
  if (large === 0) return "0";
  if (large >= 1e6 || large < 1e-4) return minus(value.toExponential(2).replace("e+", "e"));
  return minus(value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(large)))));
};

const percent = (share) => {
  const value = 100 * share;
  if (value >= 1) return `${value.toFixed(1)} %`;
  return value === 0 ? "0 %" : value >= 0.01 ? `${value.toFixed(2)} %` : "<0.01 %";
};

const bracketed = (text) => (text.startsWith("−") ? `(${text})` : text);

const TERMS = 6; // of a sum that are all written; of longer ones the first two and the last

const products = ({ left, right, of, packed }) => {
  const [a, b] = [at(left), at(right)];
  const whole = of <= TERMS && !packed;
  const places = whole ? Array.from({ length: of }, (_, i) => i) : [0, 1, of - 1];
  const terms = places.map((i, turn) => `${bracketed(number(a[i]))} × ${bracketed(number(b[packed ? turn : i]))}`);
  return (whole ? terms : [terms[0], terms[1], "…", terms[2]]).join(" + ");
};

const FORMS = {
  index: (place) => String(variable(place)),
  text: words,
  token: (name) => (name === "k" ? seen() : tower()).tokens[variable(name)],
  number: (place) => number(at(place)),
  percent: (place) => percent(at(place)),
  size: (place) => number(size(at(place))),
  most_token: (place) => seen().tokens[most(at(place))],
  most_index: (place) => String(most(at(place))),
  most_percent: (place) => percent(at(place)[most(at(place))]),
  most: (place) => number(at(place)[most(at(place))]),
  unseen: (place) => {
    const hidden = [...at(place)].flatMap((one, i) => (one ? [] : [`${i} “${seen().tokens[i]}”`]));
    return hidden.length ? hidden.join(", ") : say("none");
  },
};

// What fills a field: a constant, a sum, or a form and its place.
const filling = (slot) =>
  typeof slot === "string" ? slot : Array.isArray(slot) ? FORMS[slot[0]](slot[1]) : products(slot);

const sentence = (key, slots) =>
  say(key, new Proxy(slots, { get: (all, name) => filling(all[name]) }));

const BESIDE = /(^|=|→|\()$/; // behind these a negative number needs no brackets

const formula = ({ filled, slots }) =>
  filled.replace(/\{(\w+)\}/g, (_, name, place) => {
    const text = filling(slots[name]);
    const sum = typeof slots[name] === "object" && !Array.isArray(slots[name]);
    return sum || BESIDE.test(filled.slice(0, place).trimEnd()) ? text : bracketed(text);
  });

// Which things a formula's numbers are of: the variables of its places.
const variablesOf = (slots) => {
  const places = Object.values(slots).flatMap((slot) =>
    Array.isArray(slot) ? [slot[1].includes("[") ? slot[1] : `x[${slot[1]}]`] : slot.left ? [slot.left, slot.right] : [],
  );
  const found = new Set(places.flatMap((place) => [...split(place).axes.join(" ").matchAll(/[a-z]/g)].map(String)));
  if (places.some((place) => place.includes("@"))) found.add("layer");
  return found;
};
