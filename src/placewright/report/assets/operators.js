// The list of operators: a table that shows its first rows until it is asked for all.
function operatorList(data) {
  const FIRST = 200;
  const { operators } = data;
  let all = false;
  const fill = () => {
    const wanted = $("filter").value.toLowerCase(), device = $("on").value;
    const found = operators.n.map((_, k) => k).filter((k) => (device === "" || operators.i[k] === Number(device)) &&
      (wanted === "" || operators.n[k].toLowerCase().includes(wanted) || kindOf(k).toLowerCase().includes(wanted)));
    const shown = all ? found : found.slice(0, FIRST);
    const body = document.createElement("tbody");
    shown.forEach((k) => {
      const row = body.insertRow();
      const cells = [operators.n[k], kindOf(k), data.devices[operators.i[k]], time(operators.s[k]), time(operators.d[k]), bytes(operators.z[k])];
      cells.forEach((text, c) => {
        const cell = c === 0 ? row.appendChild(document.createElement("th")) : row.insertCell();
        if (c === 0) cell.scope = "row";
        cell.textContent = text;
      });
    });
    $("operators").tBodies[0].replaceWith(body);
    $("count").textContent = `${found.length.toLocaleString("en")} of ${operators.n.length.toLocaleString("en")} operators`;
    $("more").hidden = shown.length === found.length;
    $("more").textContent = `Show all ${found.length.toLocaleString("en")}`;
  };
  data.used.forEach((i) => {
    const option = document.createElement("option");
    option.value = i;
    option.textContent = data.devices[i];
    $("on").append(option);
  });
  $("filter").addEventListener("input", () => { all = false; fill(); });
  $("on").addEventListener("change", () => { all = false; fill(); });
  $("more").addEventListener("click", () => { all = true; fill(); });
  $("placement-details").addEventListener("toggle", fill, { once: true });
}
