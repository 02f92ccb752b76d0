// A curl command for the API.

/** The token is read from its file when the command runs: it is neither here nor in a shell's history. */
export function curlLine(address: string, file: string): string {
  return `curl -H "Authorization: Bearer $(cat ${quoted(file)})" \\\n  ${quoted(address)}`;
}

/** Quotes a word for a shell. */
function quoted(word: string): string {
  return /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
