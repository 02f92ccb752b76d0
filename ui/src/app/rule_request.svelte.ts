// What somebody wants a rule for: the editor of rules opens with it.
export interface RuleDraft { name: string; condition: string; run: string | null }
class Request { draft = $state.raw<RuleDraft | null>(null); }
export const ruleRequest = new Request();
export function requestRule(draft: RuleDraft): void { ruleRequest.draft = draft; }
