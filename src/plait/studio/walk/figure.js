// Figure: the tower as a drawing, with the stream as a line, branches beside it, and the step that is looked at.

const HIGH = 22, GAP = 9, TRUNK = 18, BRANCH = 46, RIGHT = 228, MIDDLE = (BRANCH + RIGHT) / 2;

const draw = (holder) => {
  const parts = [];
  const line = (d, kind = "flow") => parts.push(`<path class="${kind}" d="${d}"/>`);
  let y = 4, branching = false, group = "", began = null;
  const escape = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const box = (i, x, wide, label, kind = "") =>
    parts.push(
      `<g class="box ${kind}${i === state.step ? " here" : ""}" data-step="${i}"><rect x="${x}" y="${y}" width="${wide}" ` +
        `height="${HIGH}" rx="5"/><text x="${x + wide / 2}" y="${y + HIGH / 2}">${escape(label)}</text></g>`,
    );
  const { before } = tower();
  const inside = plan().length;
  stepsHere().forEach((one, i) => {
    if (i === before.length) {
      y += 8;
      began = y;
      parts.push(`<text class="frame-name" x="${RIGHT}" y="${y + 10}">${escape(say("layer_number", { layer: own().layer }))}</text>`);
      y += 10;
    }
    if (one.group && one.group !== group) {
      parts.push(`<text class="group" x="${BRANCH}" y="${y + 10}">${escape(say(one.group))}</text>`);
      y += 18;
    }
    group = one.group;
    if (one.lane === "branch") {
      if (!branching) line(`M${TRUNK} ${y + HIGH / 2}H${BRANCH}`);
      else line(`M${MIDDLE} ${y - GAP}V${y}`);
      branching = true;
      if (one.name.endsWith("projections")) {
        const wide = (RIGHT - BRANCH - 2 * 6) / 3;
        ["Q", "K", "V"].forEach((letter, turn) => box(i, BRANCH + turn * (wide + 6), wide, letter));
      } else box(i, BRANCH, RIGHT - BRANCH, say(one.title));
      y += HIGH + GAP;
    } else if (one.lane === "join") {
      line(`M${MIDDLE} ${y - GAP}V${y + 5}q0 6 -6 6H${TRUNK + 9}`);
      branching = false;
      parts.push(
        `<g class="box join${i === state.step ? " here" : ""}" data-step="${i}"><circle cx="${TRUNK}" cy="${y + 11}" r="9"/>` +
          `<text x="${TRUNK}" y="${y + 11}">+</text></g>`,
      );
      y += HIGH + GAP;
    } else {
      box(i, 4, RIGHT - 4, say(one.title), "trunk");
      y += HIGH + GAP;
    }
    if (i === before.length + inside - 1) {
      parts.unshift(`<rect class="frame" x="0" y="${began - 4}" width="${RIGHT + 6}" height="${y - began}" rx="8"/>`);
      y += 8;
    }
  });
  parts.unshift(`<path class="stream" d="M${TRUNK} 8V${y - GAP - 2}"/>`);
  holder.innerHTML = `<svg viewBox="-2 0 ${RIGHT + 10} ${y + 2}" aria-hidden="true">${parts.join("")}</svg>`;
};
