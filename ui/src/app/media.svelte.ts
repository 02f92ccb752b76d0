// The size class of the window.

class Room {
  phone = $state(false);
  narrow = $state(false);

  constructor() {
    const phone = matchMedia("(max-width: 600px)");
    const narrow = matchMedia("(max-width: 1180px)");
    const update = (): void => {
      this.phone = phone.matches;
      this.narrow = narrow.matches;
    };
    phone.addEventListener("change", update);
    narrow.addEventListener("change", update);
    update();
  }
}

/** `phone` up to 600 px, `narrow` where the header of a run collapses its controls. */
export const room = new Room();
