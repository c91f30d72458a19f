/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
/* Defined in builds with AddressSanitizer. */
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
enum { GAP_BYTES = 16 }; /* gap between allocations, to detect overruns */
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
enum { GAP_BYTES = 0 };
#endif

/* Sizes of the first block and of the largest one, in bytes; each block is
 * twice as large as the one before. */
enum { FIRST_BLOCK_BYTES = 4096, MAX_BLOCK_BYTES = 1 << 20 };

/* A memory block. calloc returns it zeroed, often without touching its pages.
 * Only the bytes handed out before a rewind, up to `dirty`, need zeroing again.
 */
typedef struct block {
    struct block *prev;
    size_t size, used, dirty;
    alignas(max_align_t) unsigned char data[];
} block;

/* An arena: a stack of blocks with a limit on its total size. */
struct lhi_arena {
    block *top;
    block *spare; /* block kept by a rewind for reuse, or NULL */
    size_t limit, handed_out, next_size;
};

lhi_arena *lhi_arena_make(size_t limit_bytes)
{
    lhi_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return NULL;
    arena->limit = limit_bytes;
    arena->next_size = FIRST_BLOCK_BYTES;
    return arena;
}

/* Frees one block; accepts NULL. */
static void free_block(block *b)
{
    if (!b)
        return;
    UNPOISON(b->data, b->size);
    free(b);
}

void lhi_arena_free(lhi_arena *arena)
{
    if (!arena)
        return;
    while (arena->top) {
        block *b = arena->top;
        arena->top = b->prev;
        free_block(b);
    }
    free_block(arena->spare);
    free(arena);
}

/* Pushes a block with room for at least `need` bytes onto the arena's stack;
 * returns NULL if allocation fails. */
static block *push_block(lhi_arena *arena, size_t need)
{
    size_t size = need > arena->next_size ? need : arena->next_size;
    block *b = arena->spare;
    if (b && b->size >= need) {
        arena->spare = NULL;
    } else {
        b = calloc(1, sizeof *b + size);
        if (!b)
            return NULL;
        if (arena->next_size < MAX_BLOCK_BYTES)
            arena->next_size *= 2;
        b->size = size;
    }
    b->prev = arena->top;
    POISON(b->data, b->size);
    arena->top = b;
    return b;
}

void *lhi_arena_alloc(lhi_arena *arena, size_t count, size_t size)
{
    const size_t align = alignof(max_align_t);
    if (size && count > (SIZE_MAX / 2) / size)
        return NULL;
    size_t bytes = count * size;
    size_t need = (bytes + align - 1) / align * align + GAP_BYTES;
    if (arena->limit && need > arena->limit - arena->handed_out)
        return NULL;
    block *b = arena->top;
    if (!b || need > b->size - b->used)
        b = push_block(arena, need);
    if (!b)
        return NULL;
    unsigned char *p = b->data + b->used;
    size_t dirty = b->dirty > b->used ? b->dirty - b->used : 0;
    b->used += need;
    if (b->used > b->dirty)
        b->dirty = b->used;
    arena->handed_out += need;
    UNPOISON(p, bytes);
    memset(p, 0, dirty < bytes ? dirty : bytes);
    return p;
}

char *lhi_arena_strndup(lhi_arena *arena, const char *text, size_t len)
{
    char *copy = lhi_arena_alloc(arena, len + 1, 1);
    if (copy)
        memcpy(copy, text, len);
    return copy;
}

char *lhi_arena_strdup(lhi_arena *arena, const char *text)
{
    return lhi_arena_strndup(arena, text, strlen(text));
}

/* Pops the arena's top block. Keeps it or the spare block, whichever is larger,
 * as the spare one: a loop that marks, allocates and rewinds then avoids a
 * system allocation per iteration. */
static void retire_top(lhi_arena *arena)
{
    block *b = arena->top;
    arena->top = b->prev;
    arena->handed_out -= b->used;
    b->used = 0;
    if (arena->spare && arena->spare->size >= b->size) {
        free_block(b);
        return;
    }
    free_block(arena->spare);
    arena->spare = b;
    POISON(b->data, b->size);
}

lhi_mark lhi_arena_mark(const lhi_arena *arena)
{
    return (lhi_mark){arena->top, arena->top ? arena->top->used : 0};
}

void lhi_arena_rewind(lhi_arena *arena, lhi_mark mark)
{
    while (arena->top && arena->top != mark.block)
        retire_top(arena);
    if (arena->top) {
        block *b = arena->top;
        arena->handed_out -= b->used - mark.used;
        b->used = mark.used;
        POISON(b->data + b->used, b->size - b->used);
    }
}

void lhi_arena_adopt(lhi_arena *into, lhi_arena *from)
{
    block **bottom = &into->top;
    while (*bottom)
        bottom = &(*bottom)->prev;
    *bottom = from->top;
    into->handed_out += from->handed_out;
    from->top = NULL;
    lhi_arena_free(from);
}

size_t lhi_arena_used(const lhi_arena *arena)
{
    return arena->handed_out;
}
