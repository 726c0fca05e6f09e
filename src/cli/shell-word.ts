/** A word of a command that people copy to a POSIX shell: nothing in it means anything there. */
export const shellWord = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
