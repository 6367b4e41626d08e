/** ESLint's RuleTester on node:test, with the TypeScript parser and file names inside this repository's src/. */
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { RuleTester } from 'eslint';
import tseslint from 'typescript-eslint';

RuleTester.describe = describe;
RuleTester.it = it;

export const ruleTester = new RuleTester({ languageOptions: { parser: tseslint.parser } });

const root = fileURLToPath(new URL('../..', import.meta.url));

/** A case whose code stands in the file `path` of the repository. */
export function inFile(path, code, messageIds) {
  const found = { filename: `${root}${path}`, code };
  return messageIds === undefined ? found : { ...found, errors: messageIds.map((messageId) => ({ messageId })) };
}
