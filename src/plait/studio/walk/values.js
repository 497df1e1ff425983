// Values: what is looked at, and the pass's numbers at places such as "decoder.layers.@.attention.scores[h p *]".

// One tower and one of its steps; of each tower a layer, a head h and a token p; and one of everything else.
const state = {
  tower: DATA.first.tower,
  step: 0,
  own: DATA.towers.map((tower) => ({ layer: 0, h: 0, p: tower.place })),
  k: 0, d: 0, e: 0, i: 0, j: 0, s: 0, t: 0,
  peek: null, // a cell under the pointer: its p and k, for as long as it is there
};
Object.assign(state.own[state.tower], { layer: DATA.first.layer, h: DATA.first.h, p: DATA.first.p });

const tower = () => DATA.towers[state.tower];
const own = () => state.own[state.tower];
const plan = () => tower().plans[tower().layers[own().layer]];
const stepsHere = () => [...tower().before, ...plan(), ...tower().after];
const step = () => stepsHere()[state.step];
const seen = () => DATA.towers.find(({ name }) => name === step().seen) ?? tower();

// A variable of a place: h p k d ...
const variable = (name) => {
  if (state.peek && name in state.peek) return state.peek[name];
  if (name === "g") return Math.floor(own().h / tower().group);
  return name in own() ? own()[name] : state[name];
};

const decoded = [];
const block = (index) => {
  if (!decoded[index]) {
    const raw = atob(DATA.blocks[index]);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    decoded[index] = new Float32Array(bytes.buffer);
  }
  return decoded[index];
};

const split = (place) => {
  const open = place.lastIndexOf("[");
  const axes = place.slice(open + 1, -1).split(" ").filter(Boolean);
  return { name: place.slice(0, open).replace("@", own().layer), axes };
};

// 7, p, e+32 or 2i+1 as a number.
const index = (axis) => {
  const [, times, name, more] = axis.match(/^(\d*)([a-z]?)\+?(\d*)$/);
  return name ? Number(times || 1) * variable(name) + Number(more || 0) : Number(times);
};

// A number; a row where the place has a *; of several * one row after the other.
const at = (place) => {
  const { name, axes } = split(place);
  const [which, ...sizes] = DATA.arrays[name];
  const data = block(which);
  let rows = [0];
  axes.forEach((axis, turn) => {
    const size = sizes[turn];
    const chosen = axis === "*" ? Array.from({ length: size }, (_, i) => i) : [Math.min(index(axis), size - 1)];
    rows = rows.flatMap((row) => chosen.map((one) => row * size + one));
  });
  return axes.includes("*") ? Float32Array.from(rows, (row) => data[row]) : data[rows[0]];
};

// How many values a place has along each *.
const sizes = (place) => {
  const { name, axes } = split(place);
  return axes.flatMap((axis, turn) => (axis === "*" ? [DATA.arrays[name][turn + 1]] : []));
};

// A word, or several where the place has a *.
const words = (place) => {
  const { name, axes } = split(place);
  const pick = (list, axis) => (axis === "*" ? list : [list[Math.min(index(axis), list.length - 1)]]);
  const found = pick(DATA.texts[name], axes[0]).flatMap((row) => pick(row, axes[1]));
  return axes.includes("*") ? found : found[0];
};

const size = (row) => Math.sqrt(row.reduce((sum, one) => sum + one * one, 0));
const most = (row) => row.reduce((best, one, i) => (Math.abs(one) > Math.abs(row[best]) ? i : best), 0);

// What a step begins with.
const begin = () => {
  state.peek = null;
  for (const [name, place] of Object.entries(step().starts)) state[name] = most(at(place));
};
