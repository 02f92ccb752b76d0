// The command by which a program asks the server.

/** With the token itself where it is given, else read from its file. */
export function curlLine(address: string, file: string, token: string | null): string {
  const held = token ?? `$(cat ${quoted(file)})`;
  return `curl -H "Authorization: Bearer ${held}" \\\n  ${quoted(address)}`;
}

/** As a shell takes it for one word. */
function quoted(word: string): string {
  return /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
