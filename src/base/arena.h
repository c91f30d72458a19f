/* SPDX-License-Identifier: Apache-2.0 */
/* Arena allocators: one per long-lived value, so that one call frees it. */
#ifndef LHI_BASE_ARENA_H
#define LHI_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct lhi_arena lhi_arena;

/* A position in an arena for lhi_arena_rewind(). */
typedef struct lhi_mark {
    void *block;
    size_t used;
} lhi_mark;

/* Creates an arena that hands out at most `limit_bytes` in total (0: no limit).
 * Returns NULL if allocation fails. */
lhi_arena *lhi_arena_make(size_t limit_bytes);
/* Frees an arena with everything allocated in it; accepts NULL. */
void lhi_arena_free(lhi_arena *arena);

/* Allocates zeroed memory, aligned for any type, with the arena's lifetime.
 * Returns NULL if allocation fails or if count * size overflows. A zero-sized
 * request returns a valid pointer. */
void *lhi_arena_alloc(lhi_arena *arena, size_t count, size_t size);
#define LHI_NEW(arena, type, count)                                            \
    ((type *)lhi_arena_alloc((arena), (count), sizeof(type)))

/* Copies a string into the arena; returns NULL if allocation fails. */
char *lhi_arena_strdup(lhi_arena *arena, const char *text);
/* Copies `len` bytes into the arena and adds a NUL; returns NULL if allocation
 * fails. */
char *lhi_arena_strndup(lhi_arena *arena, const char *text, size_t len);

/* Returns the arena's current position; lhi_arena_rewind() to it releases
 * everything allocated later. */
lhi_mark lhi_arena_mark(const lhi_arena *arena);
/* Releases everything allocated since `mark`. */
void lhi_arena_rewind(lhi_arena *arena, lhi_mark mark);

/* Moves all memory of arena `from` into `into` and frees `from`. The top block
 * of `into` remains the one in use. Earlier marks of `into` must not be
 * rewound to afterwards. */
void lhi_arena_adopt(lhi_arena *into, lhi_arena *from);

/* Returns the bytes handed out so far. */
size_t lhi_arena_used(const lhi_arena *arena);

#endif
