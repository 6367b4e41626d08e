/**
 * Imports point only down the list of rooms (rooms.js), and one model family never imports another: what two families
 * share stands directly under families/. src/index.ts, the public face, may import anything; unit tests are held to the
 * same direction, but may use what lies outside src/.
 */
import { dirname, resolve } from 'node:path';
import { ROOMS, isTest, pathInSrc, roomOf } from './rooms.js';

/** families/<x>/… gives <x>; a file directly under families/ gives undefined. */
function familyOf(inside) {
  const parts = inside.split('/');
  return parts[0] === 'families' && parts.length > 2 ? parts[1] : undefined;
}

/** @type {import('eslint').Rule.RuleModule} */
export const roomImports = {
  meta: {
    type: 'problem',
    docs: { description: 'imports point only down the list of rooms' },
    schema: [],
    messages: {
      up: 'room "{{from}}" may not import from "{{to}}": imports point only down ({{below}}).',
      family: 'family "{{from}}" may not import from family "{{to}}"; what both need stands directly under families/.',
      unknownRoom: '"{{path}}" lies in no room of src/; the rooms are listed in eslint-rules/rooms.js.',
      outside: 'src/ may not import "{{source}}", which lies outside it and is not a package.',
    },
  },
  create(context) {
    const file = pathInSrc(context.filename);
    if (file === undefined || file === 'index.ts') return {};
    const room = roomOf(file);

    function check(node, source) {
      if (typeof source !== 'string' || !source.startsWith('.')) return;
      const target = pathInSrc(resolve(dirname(context.filename), source));
      if (target === undefined) {
        if (!isTest(file)) context.report({ node, messageId: 'outside', data: { source } });
        return;
      }
      const targetRoom = roomOf(target);
      if (targetRoom === undefined) {
        context.report({ node, messageId: 'unknownRoom', data: { path: target } });
        return;
      }
      if (ROOMS.indexOf(targetRoom) < ROOMS.indexOf(room)) {
        const below = ROOMS.slice(ROOMS.indexOf(room)).join(' > ');
        context.report({ node, messageId: 'up', data: { from: room, to: targetRoom, below } });
        return;
      }
      const [from, to] = [familyOf(file), familyOf(target)];
      if (from !== undefined && to !== undefined && from !== to) {
        context.report({ node, messageId: 'family', data: { from, to } });
      }
    }

    return {
      Program(node) {
        if (room === undefined) context.report({ node, messageId: 'unknownRoom', data: { path: file } });
      },
      ImportDeclaration: (node) => check(node, node.source.value),
      ExportNamedDeclaration: (node) => check(node, node.source?.value),
      ExportAllDeclaration: (node) => check(node, node.source.value),
      ImportExpression: (node) => check(node, node.source.value),
      TSImportType: (node) => check(node, node.source?.value ?? node.argument?.literal?.value),
      // A worker's file is an import in all but name; data files (another extension) are not.
      'NewExpression[callee.name="URL"]': (node) => {
        const [path, base] = node.arguments;
        if (base?.type === 'MemberExpression' && base.property.name === 'url' && /\.[cm]?js$/.test(path?.value ?? '')) {
          check(node, path.value);
        }
      },
    };
  },
};
