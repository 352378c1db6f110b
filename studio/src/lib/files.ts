// Files that the browser saves.
export const download = (name: string, text: string, type: string): void => saveFile(name, new Blob([text], { type }));

export function saveFile(name: string, data: Blob): void {
  const url = URL.createObjectURL(data);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
