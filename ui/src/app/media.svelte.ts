// How much room the window has.

class Room {
  phone = $state(false);
  narrow = $state(false);

  constructor() {
    const phone = matchMedia("(max-width: 600px)");
    const narrow = matchMedia("(max-width: 1180px)");
    const look = (): void => {
      this.phone = phone.matches;
      this.narrow = narrow.matches;
    };
    phone.addEventListener("change", look);
    narrow.addEventListener("change", look);
    look();
  }
}

/** `phone` up to 600 px, `narrow` where the header of a run folds its controls away. */
export const room = new Room();
