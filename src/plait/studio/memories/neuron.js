// Neuron: one of them in full: what its value says, and what fires it.

const language = () => document.documentElement.lang;
const say = (key, values = {}) =>
  DATA.words[key][language()].replace(/\{(\w+)\}/g, (_, name) => values[name]);
const whole = (number) => number.toLocaleString("en");
const digits = (number) => (Math.abs(number) >= 1000 || (number && Math.abs(number) < 0.01)
  ? number.toExponential(1) : String(Number(number.toPrecision(3)))).replace("-", "−");

// An element, its class, and what is in it: texts and elements.
const make = (tag, name, ...content) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...content);
  return element;
};

// White space that would not be seen; of a token alone its space too.
const visible = (text) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍");
const shown = (text) => visible(text.trim() ? text : text.replaceAll(" ", "␣"));

// The spaces before a token, and the token; of spaces alone a sign for them.
const apart = (text) => {
  const own = text.trimStart();
  return own ? [visible(text.slice(0, text.length - own.length)), own] : ["", shown(text)];
};

const partName = (part) => {
  const [, expert] = part.match(/^experts\.(\d+)$/) ?? [];
  return expert === undefined ? say("shared_expert") : say("expert", { n: expert });
};

const nameOf = ({ network, number }) => {
  const { turn, part } = DATA.networks[network];
  return part ? say("name_in", { turn, number, part: partName(part) }) : say("name", { turn, number });
};

// The token that the value says first, where the coefficient has this sign.
const firstOf = ({ network, row }, strength) => {
  const { tokens } = DATA.networks[network];
  return of(network, strength < 0 ? "lowered" : "raised")[row * tokens];
};

const tokensOf = ({ network, row }, ids, sizes, title, name = "") => {
  const { tower, tokens } = DATA.networks[network];
  const list = make("ol", "says");
  const most = of(network, sizes)[row * tokens] || 1;
  for (let i = row * tokens; i < (row + 1) * tokens; i++) {
    const size = of(network, sizes)[i];
    const bar = make("i", name);
    bar.style.width = `${(100 * size) / most}%`;
    list.append(
      make(
        "li", "",
        make("code", "", shown(spell(lanes[tower], of(network, ids)[i]))),
        make("span", "bar", bar),
        make("span", "number", (size / 10).toFixed(1)),
      ),
    );
  }
  return make("section", "", make("h4", "", title), list);
};

const valueOf = (neuron) => {
  if (!subtracts(neuron.network, neuron.row)) return [tokensOf(neuron, "raised", "pushes", say("says"))];
  return [
    tokensOf(neuron, "raised", "pushes", say("says_positive")),
    tokensOf(neuron, "lowered", "pulls", say("says_negative"), "negative"),
  ];
};

const triggerOf = (neuron, place, strength, most) => {
  const lane = lanes[DATA.networks[neuron.network].tower];
  const { before, token, after } = around(lane, place);
  const wanted = asked(lane, place);
  const hit = wanted !== undefined && wanted === firstOf(neuron, strength);
  const [space, own] = apart(spell(lane, token));
  const mark = make("mark", "", visible(own));
  const text = make("p", "context", make("span", "seen", visible(spellAll(lane, before).trimStart()) + space), mark);
  if (lane.following && after.length) {
    const [gap, next] = apart(spell(lane, after.shift()));
    text.append(gap, make("u", "", visible(next)));
  }
  text.append(make("span", "later", visible(spellAll(lane, after))));
  if (hit) {
    const said = lane.following ? text.querySelector("u") : mark;
    said.classList.add("hit");
    said.title = say("hit");
    said.append(make("b", "tick", "✓"));
  }
  const bar = make("i", strength < 0 ? "negative" : "");
  bar.style.width = `${(100 * Math.abs(strength)) / most}%`;
  return make("li", "", make("span", "number", digits(strength)), make("span", "bar", bar), text);
};

const triggersOf = (neuron) => {
  const { network, row } = neuron;
  const { triggers } = DATA.networks[network];
  const [from, to] = [row * triggers, (row + 1) * triggers];
  const places = of(network, "places").subarray(from, to);
  const strengths = of(network, "strengths").subarray(from, to);
  const list = make("ol", "triggers");
  places.forEach((place, i) => place && list.append(triggerOf(neuron, place, strengths[i], Math.abs(strengths[0]))));
  return make("section", "", make("h4", "", say("fires")), places[0] ? list : make("p", "", say("never")));
};

const factsOf = ({ network, row }) => {
  const lane = lanes[DATA.networks[network].tower];
  const facts = [say("agrees", { n: of(network, "agrees")[row], of: DATA.keep })];
  const rank = of(network, "ranks")[row];
  if (rank)
    facts.push(say("rank", { rank: whole(rank), of: whole(lane.rows) }));
  facts.push(say("adds", { size: digits(of(network, "added")[row]) }));
  return make("p", "facts", facts.join(" · "));
};

const inFull = (neuron) => [
  make("h3", "", nameOf(neuron)),
  factsOf(neuron),
  make("div", "value", ...valueOf(neuron)),
  triggersOf(neuron),
];
