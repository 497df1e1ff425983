// Browser: the neurons as a list to order, search and walk through by keyboard; the chosen one beside it in full.
{
  const PART = 200; // rows of the list that are drawn at once
  const root = document.getElementById("browser");

  const chooser = (options) => {
    const select = make("select");
    for (const [value, key, values] of options) {
      const option = make("option");
      Object.assign(option, { value });
      option.say = () => say(key, values);
      select.append(option);
    }
    return select;
  };
  const turns = [...new Map(DATA.networks.map(({ tower, turn }) => [`${tower}.${turn}`, { tower, turn }])).entries()];
  const two = Object.keys(lanes).length > 1;
  const layer = chooser([["", "every"], ...turns.map(([value, { turn }]) => [value, "one", { turn }])]);
  if (two)
    for (const option of [...layer.options].slice(1)) {
      const [tower, turn] = option.value.split(".");
      option.say = () => `${say(tower)}: ${say("one", { turn })}`;
    }
  const order = chooser(["number", "agreement", "strength"].map((name) => [name, `by_${name}`]));
  const within = chooser(["both", "triggers", "values", "numbers"].map((name) => [name, `in_${name}`]));
  const query = Object.assign(make("input"), { type: "search", spellcheck: false, autocomplete: "off" });
  const control = (key, element) => {
    const label = make("label", "", make("span", "", ""), element);
    label.say = () => (label.firstChild.textContent = say(key));
    return label;
  };
  const labels = [control("layer", layer), control("order", order), control("find", query), control("within", within)];
  const form = make("form", "controls", ...labels);
  const count = make("p", "count");
  count.setAttribute("role", "status");
  const list = make("div", "list");
  Object.assign(list, { tabIndex: 0, role: "listbox" });
  list.setAttribute("role", "listbox");
  const detail = make("article", "neuron card");
  detail.tabIndex = 0;
  const keys = make("p", "keys");
  const columns = ["number", "agrees", "trigger", "first"].map((name) => {
    const column = make("span", name === "number" ? "name" : name);
    column.say = () => (column.textContent = say(`columns_${name}`));
    return column;
  });
  const head = make("div", "row head", ...columns.slice(0, 3), make("span", "arrow", "→"), columns[3]);
  head.setAttribute("aria-hidden", "true");
  const pane = make("div", "pane", count, head, list, keys);
  root.append(form, make("div", "panes", pane, detail));

  let listed = [], chosen = 0, drawn = 0;

  const asNumber = (text) => text.trim().match(/^(?:(encoder|decoder)\.)?(\d+)(?:\.(\d*))?$/);
  const byNumber = (text) => {
    if (!text.trim()) return neurons;
    const [, tower, turn, number] = asNumber(text) ?? [];
    return neurons.filter((one) => {
      const network = DATA.networks[one.network];
      return (
        String(network.turn) === turn && (!tower || tower === network.tower) && (!number || String(one.number) === number)
      );
    });
  };
  const ORDERS = {
    number: () => 0,
    agreement: (a, b) => of(b.network, "agrees")[b.row] - of(a.network, "agrees")[a.row] || ORDERS.strength(a, b),
    strength: (a, b) => of(b.network, "added")[b.row] - of(a.network, "added")[a.row],
  };
  const search = () => {
    const fitting = within.value === "numbers" ? byNumber(query.value) : found(query.value, within.value);
    listed = fitting.filter(({ network }) => {
      const { tower, turn } = DATA.networks[network];
      return !layer.value || layer.value === `${tower}.${turn}`;
    });
    if (order.value !== "number") listed = [...listed].sort(ORDERS[order.value]);
    list.scrollTop = drawn = 0;
    list.replaceChildren();
    draw();
    choose(0);
  };

  const short = ({ network, number }) => {
    const { tower, turn, part } = DATA.networks[network];
    return [...(two ? [tower] : []), turn, ...(part ? [part.replace("experts.", "")] : []), number].join(".");
  };
  pane.style.setProperty("--name", `${neurons.reduce((most, one) => Math.max(most, short(one).length), 0) + 0.5}ch`);

  const rowOf = (neuron, index) => {
    const { tower, triggers } = DATA.networks[neuron.network];
    const lane = lanes[tower];
    const agrees = of(neuron.network, "agrees")[neuron.row];
    const place = of(neuron.network, "places")[neuron.row * triggers];
    const strength = of(neuron.network, "strengths")[neuron.row * triggers];
    const row = make(
      "div", "row",
      make("b", "", short(neuron)),
      make("span", "agrees", `${agrees}/${DATA.keep}`),
      make("span", "trigger", place ? shown(spell(lane, lane.tokens[place])) : ""),
      make("span", "arrow", "→"),
      make("span", "first", shown(spell(lane, firstOf(neuron, strength)))),
    );
    row.id = `neuron-${index}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-label", nameOf(neuron));
    row.onclick = () => choose(index);
    return row;
  };
  const draw = (upTo = PART) => {
    const end = Math.min(listed.length, Math.max(drawn, upTo));
    for (; drawn < end; drawn++) list.append(rowOf(listed[drawn], drawn));
    count.textContent = say("count", { n: whole(listed.length), all: whole(neurons.length) });
  };
  const choose = (index) => {
    list.children[chosen]?.setAttribute("aria-selected", "false");
    chosen = Math.max(0, Math.min(index, listed.length - 1));
    if (!listed.length) {
      list.removeAttribute("aria-activedescendant");
      detail.replaceChildren(make("p", "", say("none")));
      return;
    }
    draw(chosen + PART / 2);
    const row = list.children[chosen];
    row.setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", row.id);
    const [top, height] = [row.offsetTop - list.offsetTop, row.offsetHeight];
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
    detail.replaceChildren(...inFull(listed[chosen]));
  };

  form.onsubmit = (event) => (event.preventDefault(), list.focus());
  form.onchange = (event) => event.target !== query && (hint(), search());
  let waiting = 0;
  query.oninput = () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 120);
  };
  list.onscroll = () => list.scrollTop + 2 * list.clientHeight > list.scrollHeight && draw(drawn + PART);
  list.onkeydown = (event) => {
    const page = Math.max(1, Math.floor(list.clientHeight / (list.children[0]?.offsetHeight || 1)) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(chosen + step);
  };
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    query.focus();
    query.select();
  });

  const hint = () => (query.placeholder = say(within.value === "numbers" ? "number_hint" : "find_hint"));
  const speak = () => {
    for (const part of [...labels, ...columns]) part.say();
    for (const option of form.querySelectorAll("option")) option.textContent = option.say();
    list.setAttribute("aria-label", say("list"));
    keys.textContent = say("keys");
    hint();
    draw();
    for (const [index, row] of [...list.children].entries()) row.setAttribute("aria-label", nameOf(listed[index]));
    if (listed.length) detail.replaceChildren(...inFull(listed[chosen]));
    else detail.replaceChildren(make("p", "", say("none")));
  };
  document.addEventListener("language", speak);
  order.value = "agreement";
  speak();
  search();
}
