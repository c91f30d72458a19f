/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: one per long-lived value, so that freeing it is one call. */
#ifndef LHI_ARENA_H
#define LHI_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct lhi_arena lhi_arena;

/* A place in an arena to rewind to. */
typedef struct lhi_mark {
    void *block;
    size_t used;
} lhi_mark;

/* An arena that hands out at most `limit_bytes` in total (0: no limit). NULL
 * when there is no memory. */
lhi_arena *lhi_arena_make(size_t limit_bytes);
void lhi_arena_free(lhi_arena *arena); /* NULL is fine */

/* Zeroed memory, aligned for any type, that lives as long as the arena; NULL
 * when there is none or count * size overflows. A zero-sized request gives a
 * valid pointer. */
void *lhi_arena_alloc(lhi_arena *arena, size_t count, size_t size);
#define LHI_NEW(arena, type, count)                                            \
    ((type *)lhi_arena_alloc((arena), (count), sizeof(type)))

char *lhi_arena_strdup(lhi_arena *arena, const char *text);
char *lhi_arena_strndup(lhi_arena *arena, const char *text, size_t len);

/* Everything allocated after the mark is gone after the rewind. */
lhi_mark lhi_arena_mark(const lhi_arena *arena);
void lhi_arena_rewind(lhi_arena *arena, lhi_mark mark);

/* What `from` has handed out lives as long as `into` then, which no mark from
 * before is to be rewound in; `from` is gone. */
void lhi_arena_adopt(lhi_arena *into, lhi_arena *from);

/* Bytes handed out so far. */
size_t lhi_arena_used(const lhi_arena *arena);

#endif
