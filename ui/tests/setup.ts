// The little of a browser that the framework-free parts need: where the page is served from, and no colours.

globalThis.document ??= { baseURI: "http://localhost/", documentElement: {} } as Document;
globalThis.getComputedStyle ??= (() => ({
  getPropertyValue: () => "",
})) as unknown as typeof getComputedStyle;
