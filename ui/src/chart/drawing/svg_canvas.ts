// A canvas that records drawing calls as SVG, so that the same functions draw pixels and vectors.

/** The part of the canvas API that charts use. */
export type Canvas = Pick<
  CanvasRenderingContext2D,
  | "arc"
  | "beginPath"
  | "clip"
  | "closePath"
  | "fill"
  | "fillStyle"
  | "fillText"
  | "font"
  | "globalAlpha"
  | "lineJoin"
  | "lineTo"
  | "lineWidth"
  | "moveTo"
  | "rect"
  | "restore"
  | "save"
  | "setLineDash"
  | "stroke"
  | "strokeStyle"
  | "textAlign"
  | "textBaseline"
>;

const LOOK = {
  fillStyle: "#000000" as Canvas["fillStyle"],
  strokeStyle: "#000000" as Canvas["strokeStyle"],
  globalAlpha: 1,
  lineWidth: 1,
  lineJoin: "round" as CanvasLineJoin,
  font: "11px sans-serif",
  textAlign: "left" as CanvasTextAlign,
  textBaseline: "alphabetic" as CanvasTextBaseline,
};
const ANCHORS: Partial<Record<CanvasTextAlign, string>> = { center: "middle", right: "end" };
/** Offset of a text's baseline from its middle or top, relative to the font size. */
const DROPS: Partial<Record<CanvasTextBaseline, number>> = { middle: 0.35, top: 0.8, bottom: -0.2 };

export class SvgCanvas implements Canvas {
  fillStyle = LOOK.fillStyle;
  strokeStyle = LOOK.strokeStyle;
  globalAlpha = LOOK.globalAlpha;
  lineWidth = LOOK.lineWidth;
  lineJoin = LOOK.lineJoin;
  font = LOOK.font;
  textAlign = LOOK.textAlign;
  textBaseline = LOOK.textBaseline;
  private dash: number[] = [];
  private path = "";
  private began = false;
  private readonly parts: string[] = [];
  private readonly kept: { look: typeof LOOK; dash: number[]; clips: number }[] = [];
  private clips = 0;

  /** Everything that was drawn, as the content of an `svg` element. */
  get content(): string {
    return this.parts.join("");
  }

  save(): void {
    const look = Object.fromEntries(Object.keys(LOOK).map((name) => [name, this[name as keyof typeof LOOK]]));
    this.kept.push({ look: look as typeof LOOK, dash: this.dash, clips: this.clips });
  }

  restore(): void {
    const before = this.kept.pop();
    if (!before) return;
    for (; this.clips > before.clips; this.clips -= 1) this.parts.push("</g>");
    Object.assign(this, before.look);
    this.dash = before.dash;
  }

  beginPath(): void {
    this.path = "";
    this.began = false;
  }

  moveTo(x: number, y: number): void {
    this.path += `M${short(x)} ${short(y)}`;
    this.began = true;
  }

  lineTo(x: number, y: number): void {
    if (this.began) this.path += `L${short(x)} ${short(y)}`;
    else this.moveTo(x, y);
  }

  closePath(): void {
    this.path += "Z";
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}Z`;
  }

  /** A whole circle, regardless of the angles: charts draw only dots. */
  arc(x: number, y: number, radius: number): void {
    const [r, across] = [short(radius), short(2 * radius)];
    this.path += `M${short(x - radius)} ${short(y)}a${r} ${r} 0 1 0 ${across} 0a${r} ${r} 0 1 0 -${across} 0`;
  }

  clip(): void {
    // Named by its content: pictures on the same page share their names.
    const name = `clip${this.path.replaceAll(/\W/g, "-")}`;
    this.parts.push(`<clipPath id="${name}"><path d="${this.path}"/></clipPath><g clip-path="url(#${name})">`);
    this.clips += 1;
  }

  fill(): void {
    if (this.path) this.parts.push(`<path d="${this.path}" fill="${this.colour("fillStyle")}"${this.alpha}/>`);
  }

  stroke(): void {
    if (!this.path) return;
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.map(short).join(" ")}"` : "";
    const look = `stroke="${this.colour("strokeStyle")}" stroke-width="${short(this.lineWidth)}"`;
    this.parts.push(
      `<path d="${this.path}" fill="none" ${look} stroke-linejoin="${this.lineJoin}"${dash}${this.alpha}/>`,
    );
  }

  setLineDash(dash: number[]): void {
    this.dash = dash;
  }

  fillText(text: string, x: number, y: number): void {
    const [, weight = "400", size = "11", family = ""] = /^(\d+ )?([\d.]+)px (.*)$/.exec(this.font) ?? [];
    const down = (DROPS[this.textBaseline] ?? 0) * Number(size);
    const face = `font-family="${escaped(family)}" font-size="${size}" font-weight="${weight.trim()}"`;
    const anchor = ANCHORS[this.textAlign] ?? "start";
    this.parts.push(
      `<text x="${short(x)}" y="${short(y + down)}" ${face} text-anchor="${anchor}" fill="${this.colour("fillStyle")}"${this.alpha}>${escaped(text)}</text>`,
    );
  }

  private colour(name: "fillStyle" | "strokeStyle"): string {
    return escaped(String(this[name]));
  }

  private get alpha(): string {
    return this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
  }
}

export function escaped(text: string): string {
  const signs: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  // Characters that XML does not allow are removed.
  return text.replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "").replaceAll(/[&<>"]/g, (sign) => signs[sign]!);
}

function short(value: number): string {
  return String(Math.round(value * 100) / 100);
}
