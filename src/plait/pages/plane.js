// Values under the pointer: a line at the nearest step, and what each series is there.
const inWords = (text) => text[document.documentElement.lang] ?? text; // said in both languages, or in one
for (const plane of document.querySelectorAll(".plane")) {
  const lines = JSON.parse(plane.dataset.lines);
  const unit = JSON.parse(plane.dataset.unit);
  const [low, high] = plane.dataset.across.split(" ").map(Number);
  const box = plane.querySelector("output");
  const cursor = plane.appendChild(Object.assign(document.createElement("i"), { className: "cursor" }));
  const nearest = (points, x) =>
    points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
  plane.addEventListener("pointermove", (event) => {
    const frame = plane.getBoundingClientRect();
    const at = low + ((event.clientX - frame.left) / frame.width) * (high - low);
    const [step] = nearest(lines.flatMap((line) => line.points), at);
    const share = (step - low) / (high - low);
    const rows = [document.createTextNode(`${inWords(unit)} ${step.toLocaleString("en")}`)];
    for (const line of lines) {
      const row = Object.assign(document.createElement("div"), { className: `key ${line.colour}` });
      row.append(`${inWords(line.name)} ${nearest(line.points, step)[1]}`);
      rows.push(row);
    }
    box.replaceChildren(...rows);
    box.style.display = cursor.style.display = "block";
    cursor.style.left = `${100 * share}%`;
    box.style.left = `${100 * share}%`;
    box.style.transform = share > 0.5 ? "translate(calc(-100% - 8px))" : "translate(8px)";
  });
  plane.addEventListener("pointerleave", () => (box.style.display = cursor.style.display = "none"));
}
