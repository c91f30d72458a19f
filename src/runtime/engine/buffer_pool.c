/* SPDX-License-Identifier: Apache-2.0 */
/* Message buffers. The predicted number in flight is allocated before the first
 * step. The pool grows if more are needed, since no pass may wait for a send.
 */
#include "runtime/engine/rank.h"

#include <stdlib.h>
#include <string.h>

/* Alignment of a buffer in bytes: a cache line. */
enum { ALIGN = 64 };

size_t lhi_pool_buffer_bytes(size_t bytes)
{
    return bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
}

size_t lhi_pool_total_bytes(const lhi_pool *pool)
{
    return pool->n_buffers * lhi_pool_buffer_bytes(pool->bytes);
}

/* Frees a buffer; NULL is allowed. */
static void free_buffer(lhi_buffer *buffer)
{
    if (!buffer)
        return;
    free(buffer->others);
    free(buffer->data);
    free(buffer);
}

/* Allocates a message buffer of the pool; NULL: out of memory. */
static lhi_buffer *make_buffer(lhi_pool *pool)
{
    lhi_buffer *buffer = calloc(1, sizeof *buffer);
    size_t size = lhi_pool_buffer_bytes(pool->bytes);
    const uint32_t n = pool->max_others;
    if (buffer)
        buffer->data = malloc(size);
    if (buffer && n > 0)
        buffer->others = calloc(n, sizeof *buffer->others);
    if (!buffer || !buffer->data || (n > 0 && !buffer->others)) {
        free_buffer(buffer);
        return NULL;
    }
    pool->n_buffers++;
    memset(buffer->data, 0, size); /* touches its pages ahead of use */
    return buffer;
}

/* Checks whether all parts of a buffer's message are sent. */
static bool is_sent(lhi_pool *pool, lhi_buffer *buffer)
{
    for (uint32_t i = 0; i <= buffer->n_others; i++)
        if (lhi_net_wait(pool->net, lhi_buffer_get_op(buffer, i), 1, NULL) ==
            LH_ECANCELED)
            return false;
    return true;
}

/* Returns buffers whose sends are complete to the pool's free list; tests only
 * the four oldest sends. */
static void reclaim(lhi_pool *pool)
{
    lhi_buffer **at = &pool->sending;
    for (int looked = 0; *at && looked < 4; looked++) {
        lhi_buffer *buffer = *at;
        if (!is_sent(pool, buffer)) {
            at = &buffer->next;
            continue;
        }
        *at = buffer->next;
        lhi_pool_give(pool, buffer);
    }
    pool->sending_end = &pool->sending;
    while (*pool->sending_end)
        pool->sending_end = &(*pool->sending_end)->next;
}

lhi_buffer *lhi_pool_take(lhi_pool *pool)
{
    if (!pool->free)
        reclaim(pool);
    lhi_buffer *buffer = pool->free;
    if (!buffer) {
        pool->growth++;
        return make_buffer(pool);
    }
    pool->free = buffer->next;
    buffer->next = NULL;
    return buffer;
}

void lhi_pool_give(lhi_pool *pool, lhi_buffer *buffer)
{
    buffer->next = pool->free;
    pool->free = buffer;
}

void lhi_pool_give_after_send(lhi_pool *pool, lhi_buffer *buffer)
{
    buffer->next = NULL;
    *pool->sending_end = buffer;
    pool->sending_end = &buffer->next;
}

lh_status lhi_pool_drain(lhi_pool *pool, const lhi_net_stop *stop,
                         lh_error *err)
{
    while (pool->sending) {
        lhi_buffer *buffer = pool->sending;
        for (uint32_t i = 0; i <= buffer->n_others; i++)
            LHI_TRY(lhi_net_wait_or_stop(
                pool->net, lhi_buffer_get_op(buffer, i), stop, err));
        pool->sending = buffer->next;
        lhi_pool_give(pool, buffer);
    }
    pool->sending_end = &pool->sending;
    return LH_OK;
}

bool lhi_pool_init(lhi_pool *pool, lhi_net *net, size_t bytes,
                   uint32_t max_others, uint32_t n)
{
    *pool = (lhi_pool){.net = net, .bytes = bytes, .max_others = max_others};
    pool->sending_end = &pool->sending;
    for (uint32_t i = 0; i < n; i++) {
        lhi_buffer *buffer = make_buffer(pool);
        if (!buffer)
            return false;
        lhi_pool_give(pool, buffer);
    }
    return true;
}

/* Frees a buffer list. */
static void free_list(lhi_buffer *buffer)
{
    while (buffer) {
        lhi_buffer *next = buffer->next;
        free_buffer(buffer);
        buffer = next;
    }
}

void lhi_pool_fini(lhi_pool *pool)
{
    free_list(pool->free);
    free_list(pool->sending);
}
