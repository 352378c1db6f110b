// One colour for each type, readable on the light and the dark background.
const COLOURS = ["#4a6ee0", "#d2691e", "#2f9e78", "#a657c8", "#c9435f", "#3b93b5", "#8a8a2e", "#7a6bd8", "#b0763c", "#5f8a3c", "#c65aa0", "#617489"];

export function colourOf(type: string, types: string[]): string {
  const place = types.indexOf(type);
  return COLOURS[(place < 0 ? types.length : place) % COLOURS.length];
}

export const cssValue = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const laneColour = (lane: number): string => COLOURS[lane % COLOURS.length];
