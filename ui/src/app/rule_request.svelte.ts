// The draft that the rule editor opens with.
export interface RuleDraft {
  name: string;
  condition: string;
  run: string | null;
}

class Request {
  draft = $state.raw<RuleDraft | null>(null);
}

/** The current draft; null while the editor is closed. */
export const ruleRequest = new Request();

/** Opens the rule editor, on any page. */
export function requestRule(draft: RuleDraft): void {
  ruleRequest.draft = draft;
}
