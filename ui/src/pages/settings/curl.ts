// The command by which a program asks the server.

/** The token is read from its file when the command runs: it stands neither here nor in a shell's history. */
export function curlLine(address: string, file: string): string {
  return `curl -H "Authorization: Bearer $(cat ${quoted(file)})" \\\n  ${quoted(address)}`;
}

/** As a shell takes it for one word. */
function quoted(word: string): string {
  return /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
