// Unpacked: the page's numbers as arrays, each network's when it is first asked for; tokens as text; what is found by text.

// Base64 behind a letter that says of what: 2 and 4 bytes of whole numbers, f for fractions.
const unpack = (packed) => {
  const raw = atob(packed.slice(1));
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new { 2: Uint16Array, 4: Uint32Array, f: Float32Array }[packed[0]](bytes.buffer);
};

const FIELDS = ["numbers", "places", "strengths", "raised", "pushes", "lowered", "pulls", "ranks", "added", "agrees"];

// A network's arrays by name, decoded once; neuron i's triggers are at i * triggers, its tokens at i * tokens.
const arrays = DATA.networks.map(() => ({}));
const of = (network, field) => (arrays[network][field] ??= unpack(DATA.networks[network][field]));

const lanes = Object.fromEntries(
  Object.entries(DATA.lanes).map(([tower, lane]) => [tower, { ...lane, tokens: unpack(lane.tokens) }]),
);

// Where the model began to read anew, and where a text ends, among the tokens of a lane.
const isRow = (lane, token) => token === lane.vocabulary.length;
const isEnd = (lane, token) => token === lane.vocabulary.length + 1;

const hex = (bytes) => bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ");

// One token alone; of a part of a character its bytes.
const spell = (lane, token) => {
  const piece = lane.vocabulary[token];
  return typeof piece === "string" ? piece : `⟨${hex(piece)}⟩`;
};

// Tokens in a row; parts of characters that belong together become characters.
const spellAll = (lane, tokens) => {
  let text = "";
  let bytes = [];
  const flush = () => {
    text += bytes.length ? new TextDecoder().decode(new Uint8Array(bytes)) : "";
    bytes = [];
  };
  for (const token of tokens) {
    const piece = lane.vocabulary[token];
    if (typeof piece !== "string") {
      bytes.push(...piece);
      continue;
    }
    flush();
    text += piece;
  }
  flush();
  return text;
};

// What stands before a place within what the model read, and after it within the text.
const BEFORE = 24, AFTER = 8;
const around = (lane, place) => {
  const { tokens } = lane;
  const before = [], after = [];
  for (let i = place - 1; before.length < BEFORE && !isEnd(lane, tokens[i]) && !isRow(lane, tokens[i]); i--)
    before.unshift(tokens[i]);
  for (let i = place + 1; after.length < AFTER && !isEnd(lane, tokens[i]); i++)
    if (!isRow(lane, tokens[i])) after.push(tokens[i]);
  return { before, token: tokens[place], after };
};

// What was asked at a place: the token after it, or its own; undefined where a text ends.
const asked = (lane, place) => {
  if (!lane.following) return lane.tokens[place];
  const next = isRow(lane, lane.tokens[place + 1]) ? place + 2 : place + 1;
  return isEnd(lane, lane.tokens[next]) ? undefined : lane.tokens[next];
};

// Every neuron: its network and its place there.
const neurons = DATA.networks.flatMap((_, network) =>
  Array.from(of(network, "numbers"), (number, row) => ({ network, row, number })),
);

// Those that have a token that begins so, spaces and case aside, among their triggers or their value's tokens.
const found = (text, within) => {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return neurons;
  const fits = Object.fromEntries(
    Object.entries(lanes).map(([tower, lane]) => {
      const own = (piece) => typeof piece === "string" && piece.trim().toLowerCase().startsWith(wanted);
      return [tower, Uint8Array.from(lane.vocabulary, own)];
    }),
  );
  return neurons.filter(({ network, row }) => {
    const { tower, triggers, tokens } = DATA.networks[network];
    const some = (ids, n, token = (id) => id) => {
      for (let i = row * n; i < (row + 1) * n && i < ids.length; i++) if (fits[tower][token(ids[i])]) return true;
      return false;
    };
    const trigger = (place) => lanes[tower].tokens[place];
    if (within !== "values" && some(of(network, "places"), triggers, trigger)) return true;
    if (within === "triggers") return false;
    return some(of(network, "raised"), tokens) || (subtracts(network, row) && some(of(network, "lowered"), tokens));
  });
};

// Whether some trigger of a neuron has a negative coefficient.
const subtracts = (network, row) => {
  const { triggers } = DATA.networks[network];
  return of(network, "strengths").subarray(row * triggers, (row + 1) * triggers).some((strength) => strength < 0);
};
