/* SPDX-License-Identifier: Apache-2.0 */
/* Worker that runs longhaul, compiled to WebAssembly, over an in-memory folder.
 * It has no access to the rest of the page. The message {wasm} compiles the
 * program. The message {id, args, files} runs it; the replies are {id,
 * progress} during the run, and {id, code, out, err, files, ms} at the end. */
function programWorker() {
  const BADF = 8;
  const EXIST = 20;
  const INVAL = 28;
  const NOENT = 44;
  const NOSYS = 52;
  const FOLDER = 3; /* descriptor of the only preopened folder */
  const text = new TextDecoder();
  const utf8 = new TextEncoder();
  let module = null;

  class Ended extends Error {
    constructor(code) {
      super('ended');
      this.code = code;
    }
  }

  /* Runs the program once. `files` maps names to Uint8Arrays and receives the
   * changes. */
  function run(args, files, progress) {
    const inodes = new Map();
    const open = new Map(); /* descriptor -> {name, at, file} */
    const said = { 1: '', 2: '' };
    const words = args.map((arg) => utf8.encode(`${arg}\0`));
    let memory = null;
    let next = FOLDER + 1;

    const view = () => new DataView(memory.buffer);
    const bytes = (at, n) => new Uint8Array(memory.buffer, at, n);
    const u32 = (at, value) => view().setUint32(at, value, true);
    const u64 = (at, value) => view().setBigUint64(at, BigInt(value), true);
    const nameAt = (at, n) => text.decode(bytes(at, n).slice())
      .replace(/^(\.?\/)+/, '') || '.';
    const inode = (name) => {
      if (!inodes.has(name)) inodes.set(name, inodes.size + 1);
      return inodes.get(name);
    };
    const each = (list, n, action) => {
      for (let i = 0; i < n; i++) {
        const at = view().getUint32(list + 8 * i, true);
        if (action(bytes(at, view().getUint32(list + 8 * i + 4, true)))) break;
      }
    };
    const say = (fd, part) => {
      said[fd] += text.decode(part.slice(), { stream: false });
      if (fd !== 2) return;
      const lines = said[2].split('\n');
      const last = lines.pop();
      const live = lines.filter((line) => line.startsWith('\r'));
      if (live.length) progress(live[live.length - 1].slice(1));
      said[2] = lines.filter((line) => !line.startsWith('\r'))
        .map((line) => `${line}\n`).join('') + last;
    };
    const state = (name, at) => {
      const isFolder = name === '.';
      bytes(at, 64).fill(0);
      u64(at + 8, inode(name));
      view().setUint8(at + 16, isFolder ? 3 : 4);
      u64(at + 24, 1);
      u64(at + 32, isFolder ? 0 : files.get(name).length);
      return 0;
    };
    const write = (o, part) => {
      const old = files.get(o.name);
      const end = o.at + part.length;
      if (end > o.room.length) {
        const room = new Uint8Array(Math.max(end, 2 * o.room.length, 4096));
        room.set(old);
        o.room = room;
      }
      o.room.set(part, o.at);
      o.at = end;
      files.set(o.name, o.room.subarray(0, Math.max(end, old.length)));
    };

    const calls = {
      args_sizes_get: (count, size) => {
        u32(count, words.length);
        u32(size, words.reduce((n, word) => n + word.length, 0));
        return 0;
      },
      args_get: (list, at) => {
        words.forEach((word, i) => {
          u32(list + 4 * i, at);
          bytes(at, word.length).set(word);
          at += word.length;
        });
        return 0;
      },
      environ_sizes_get: (count, size) => {
        u32(count, 0);
        u32(size, 0);
        return 0;
      },
      environ_get: () => 0,
      clock_time_get: (clock, precision, at) => {
        const ms = clock === 0 ? Date.now() : performance.now();
        u64(at, Math.round(ms * 1e6));
        return 0;
      },
      fd_prestat_get: (fd, at) => {
        if (fd !== FOLDER) return BADF;
        u32(at, 0);
        u32(at + 4, 1);
        return 0;
      },
      fd_prestat_dir_name: (fd, at) => {
        bytes(at, 1)[0] = 46; /* '.' */
        return 0;
      },
      fd_fdstat_get: (fd, at) => {
        if (fd > FOLDER && !open.has(fd)) return BADF;
        bytes(at, 24).fill(0);
        view().setUint8(at, fd < FOLDER ? 2 : fd === FOLDER ? 3 : 4);
        /* A seekable file is not a terminal. */
        bytes(at + 8, 16).fill(255);
        if (fd < FOLDER) view().setUint8(at + 8, 255 & ~0x24);
        return 0;
      },
      fd_fdstat_set_flags: () => 0,
      fd_filestat_get: (fd, at) => {
        if (fd === FOLDER) return state('.', at);
        return open.has(fd) ? state(open.get(fd).name, at) : BADF;
      },
      path_filestat_get: (fd, flags, path, n, at) => {
        const name = nameAt(path, n);
        return name === '.' || files.has(name) ? state(name, at) : NOENT;
      },
      path_open: (fd, flags, path, n, how, rights, inherited, fdflags, out) => {
        const name = nameAt(path, n);
        const there = name === '.' || files.has(name);
        if (there && (how & 4)) return EXIST;
        if (!there && !(how & 1)) return NOENT;
        if (!there || (how & 8)) files.set(name, new Uint8Array(0));
        open.set(next, { name, at: 0, room: files.get(name) });
        u32(out, next++);
        return 0;
      },
      fd_read: (fd, list, n, out) => {
        const o = open.get(fd);
        let got = 0;
        if (!o) return fd === 0 ? (u32(out, 0), 0) : BADF;
        each(list, n, (part) => {
          const from = files.get(o.name).subarray(o.at, o.at + part.length);
          part.set(from);
          o.at += from.length;
          got += from.length;
          return from.length < part.length;
        });
        u32(out, got);
        return 0;
      },
      fd_write: (fd, list, n, out) => {
        const o = open.get(fd);
        let put = 0;
        if (!o && fd !== 1 && fd !== 2) return BADF;
        each(list, n, (part) => {
          if (o) write(o, part);
          else say(fd, part);
          put += part.length;
        });
        u32(out, put);
        return 0;
      },
      fd_seek: (fd, offset, whence, out) => {
        const o = open.get(fd);
        if (!o) return fd < FOLDER ? 70 : BADF; /* like a pipe */
        const from = whence === 0 ? 0 : whence === 1 ? o.at
          : files.get(o.name).length;
        o.at = from + Number(offset);
        u64(out, o.at);
        return 0;
      },
      fd_close: (fd) => (open.delete(fd) || fd <= FOLDER ? 0 : BADF),
      fd_sync: () => 0,
      fd_readdir: (fd, at, room, cookie, out) => {
        u32(out, 0);
        return 0;
      },
      path_readlink: () => INVAL,
      path_remove_directory: () => NOENT,
      path_rename: (fd, from, n, toFd, to, m) => {
        const old = nameAt(from, n);
        if (!files.has(old)) return NOENT;
        files.set(nameAt(to, m), files.get(old));
        files.delete(old);
        return 0;
      },
      path_unlink_file: (fd, path, n) =>
        (files.delete(nameAt(path, n)) ? 0 : NOENT),
      proc_exit: (code) => { throw new Ended(code); },
    };
    const imports = {};
    for (const need of WebAssembly.Module.imports(module)) {
      imports[need.module] = imports[need.module] || {};
      imports[need.module][need.name] = calls[need.name] || (() => NOSYS);
    }
    const instance = new WebAssembly.Instance(module, imports);
    memory = instance.exports.memory;
    let code = 0;
    try {
      instance.exports._start();
    } catch (error) {
      if (!(error instanceof Ended)) throw error;
      code = error.code;
    }
    return { code, out: said[1], err: said[2] };
  }

  const answer = async (told) => {
    try {
      if (told.wasm) {
        module = await WebAssembly.compile(told.wasm);
        self.postMessage({ ready: true });
        return;
      }
      const from = performance.now();
      const files = new Map(told.files);
      const done = run(told.args, files,
        (line) => self.postMessage({ id: told.id, progress: line }));
      self.postMessage({ id: told.id, ...done,
        ms: performance.now() - from,
        files: [...files].map(([name, data]) => [name, data.slice()]) });
    } catch (error) {
      self.postMessage({ id: told.id, broken: String(error.message || error) });
    }
  };
  /* Handles messages in order of arrival, since compilation is asynchronous. */
  let last = Promise.resolve();
  self.onmessage = ({ data: told }) => {
    last = last.then(() => answer(told));
  };
}
