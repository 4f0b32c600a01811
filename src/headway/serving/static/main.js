// Lists the models that this server has. Text from the server is inserted as text, never as markup.
const list = document.getElementById("models");
const { data } = await (await fetch("/v1/models")).json();
for (const model of data) {
  const item = document.createElement("li");
  item.textContent = `${model.id}: ${model.task}`;
  list.append(item);
}
