/**
 * Values under sequences of token ids: a radix tree, so that all values whose sequence begins a prompt are found in one walk
 * over the prompt.
 *
 * Invariants: an edge is never empty; a node without values has at least two children, but for the root; edges are views
 * of the sequences that were put in, which are never changed.
 */

interface Node<V> {
  /** Ids between the parent and this node. */
  edge: Int32Array;
  readonly children: Map<number, Node<V>>;
  readonly values: Set<V>;
}

const node = <V>(edge: Int32Array): Node<V> => ({ edge, children: new Map(), values: new Set() });

export class TokenTrie<V> {
  readonly #root = node<V>(new Int32Array(0));

  add(tokens: Int32Array, value: V): void {
    let at = this.#root;
    let depth = 0;
    while (depth < tokens.length) {
      const child = at.children.get(tokens[depth]!);
      if (child === undefined) {
        const leaf = node<V>(tokens.subarray(depth));
        at.children.set(tokens[depth]!, leaf);
        at = leaf;
        break;
      }
      const shared = sharedLength(child.edge, tokens, depth);
      if (shared < child.edge.length) {
        const fork = node<V>(child.edge.subarray(0, shared));
        at.children.set(tokens[depth]!, fork);
        child.edge = child.edge.subarray(shared);
        fork.children.set(child.edge[0]!, child);
        at = fork;
      } else {
        at = child;
      }
      depth += shared;
    }
    at.values.add(value);
  }

  /** Takes a value out; false when it is not there. */
  remove(tokens: Int32Array, value: V): boolean {
    const path = this.#path(tokens);
    const last = path.at(-1);
    if (last?.depth !== tokens.length || !last.node.values.delete(value)) return false;
    for (let i = path.length - 1; i > 0; i--) {
      const { node: empty, depth } = path[i]!;
      const { node: parent } = path[i - 1]!;
      if (empty.values.size > 0 || empty.children.size > 1) break;
      const first = tokens[depth - empty.edge.length]!;
      const [only] = empty.children.values();
      if (only === undefined) {
        parent.children.delete(first);
        continue;
      }
      const joined = new Int32Array(empty.edge.length + only.edge.length);
      joined.set(empty.edge);
      joined.set(only.edge, empty.edge.length);
      only.edge = joined;
      parent.children.set(first, only);
      break;
    }
    return true;
  }

  /** The values whose sequence is a beginning of `tokens`, or all of it, shortest first. */
  *along(tokens: ArrayLike<number>): Generator<{ readonly depth: number; readonly values: ReadonlySet<V> }> {
    for (const { node: at, depth } of this.#path(tokens)) if (at.values.size > 0) yield { depth, values: at.values };
  }

  /** The values whose sequence begins with `tokens`, those of `tokens` itself included. */
  *under(tokens: ArrayLike<number>): Generator<V> {
    const { node: at, depth } = this.#path(tokens).at(-1)!;
    if (depth === tokens.length) yield* all(at);
    else {
      const child = at.children.get(tokens[depth]!);
      if (child && sharedLength(child.edge, tokens, depth) === tokens.length - depth) yield* all(child);
    }
  }

  /** Nodes that are whole within `tokens`, the root first. */
  #path(tokens: ArrayLike<number>): { readonly node: Node<V>; readonly depth: number }[] {
    let at = this.#root;
    let depth = 0;
    const path = [{ node: at, depth }];
    for (;;) {
      const child = depth < tokens.length ? at.children.get(tokens[depth]!) : undefined;
      if (child === undefined || sharedLength(child.edge, tokens, depth) < child.edge.length) return path;
      at = child;
      depth += child.edge.length;
      path.push({ node: at, depth });
    }
  }
}

/** Ids that an edge shares with what follows `from`. */
function sharedLength(edge: Int32Array, tokens: ArrayLike<number>, from: number): number {
  const most = Math.min(edge.length, tokens.length - from);
  let shared = 0;
  while (shared < most && edge[shared] === tokens[from + shared]) shared++;
  return shared;
}

function* all<V>(at: Node<V>): Generator<V> {
  yield* at.values;
  for (const child of at.children.values()) yield* all(child);
}
