/**
 * Every error that the library makes is a PlumblineError with a code of the table in src/errors.ts, so that each has a
 * status, a wire type and a doc entry. Plain errors are for tests only.
 */
import { isTest, pathInSrc } from './rooms.js';

const PLAIN = new Set([
  'Error',
  'TypeError',
  'RangeError',
  'SyntaxError',
  'ReferenceError',
  'EvalError',
  'URIError',
  'AggregateError',
  'DOMException',
]);

/** @type {import('eslint').Rule.RuleModule} */
export const errorsFromTable = {
  meta: {
    type: 'problem',
    docs: { description: 'errors carry a code of the error table' },
    schema: [],
    messages: {
      plain: 'make a PlumblineError with a code of src/errors.ts, not a plain {{name}}.',
    },
  },
  create(context) {
    const file = pathInSrc(context.filename);
    if (file === undefined || isTest(file)) return {};

    // Made in any place (thrown, rejected with, handed to abort()), with or without `new`.
    function check(node) {
      if (node.callee.type === 'Identifier' && PLAIN.has(node.callee.name)) {
        context.report({ node, messageId: 'plain', data: { name: node.callee.name } });
      }
    }
    return { NewExpression: check, CallExpression: check };
  },
};
