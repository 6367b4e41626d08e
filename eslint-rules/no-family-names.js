/**
 * Shared code knows no model family: laws are data that a family hands over, never an `if (family)`. The names of the
 * families may stand in src/families/, in the sampler laws under src/sample/laws/, in strings of src/cli/ (help texts),
 * and in comments and unit tests, but in no other name, string, pattern or file name.
 */
import { basename } from 'node:path';
import { isTest, pathInSrc } from './rooms.js';

const FAMILY = /qwen|deepseek|glm/i;
const EXEMPT = ['families/', 'sample/laws/'];

/** @type {import('eslint').Rule.RuleModule} */
export const noFamilyNames = {
  meta: {
    type: 'problem',
    docs: { description: 'shared rooms name no model family' },
    schema: [],
    messages: {
      name: '"{{text}}" names a model family in a shared room; let the family hand this over as data.',
    },
  },
  create(context) {
    const file = pathInSrc(context.filename);
    if (file === undefined || isTest(file) || EXEMPT.some((folder) => file.startsWith(folder))) return {};
    const helpTexts = file.startsWith('cli/');

    function check(node, text) {
      if (FAMILY.test(text)) {
        context.report({ node, messageId: 'name', data: { text: text.length > 40 ? `${text.slice(0, 40)}…` : text } });
      }
    }
    return {
      Program: (node) => check(node, basename(file)),
      Identifier: (node) => check(node, node.name),
      PrivateIdentifier: (node) => check(node, node.name),
      Literal(node) {
        if (node.regex) check(node, node.regex.pattern);
        else if (typeof node.value === 'string' && !helpTexts) check(node, node.value);
      },
      TemplateElement: (node) => {
        if (!helpTexts) check(node, node.value.raw);
      },
    };
  },
};
