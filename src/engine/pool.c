/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers for messages. As many as the prediction has under way are made
 * before the first step; where reality needs more the pool grows, since a pass
 * must not wait for a send. */
#include "engine/rank.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

static lhi_buffer *make_buffer(lhi_rank *rank)
{
    lhi_buffer *buffer = calloc(1, sizeof *buffer);
    size_t size = (rank->message_bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (buffer)
        buffer->data = malloc(size ? size : ALIGN);
    if (!buffer || !buffer->data) {
        free(buffer);
        return NULL;
    }
    memset(buffer->data, 0, size); /* its pages are there before it is needed */
    rank->n_buffers++;
    return buffer;
}

/* The longest under way first: buffers whose sends are done are free. */
static void reclaim(lhi_rank *rank)
{
    lhi_buffer **at = &rank->sending;
    for (int looked = 0; *at && looked < 4; looked++) {
        lhi_buffer *buffer = *at;
        if (lhi_net_wait(rank->o.net, &buffer->op, 1, NULL) == LH_ECANCELED) {
            at = &buffer->next;
            continue;
        }
        *at = buffer->next;
        lhi_pool_give(rank, buffer);
    }
    rank->sending_end = &rank->sending;
    while (*rank->sending_end)
        rank->sending_end = &(*rank->sending_end)->next;
}

lhi_buffer *lhi_pool_take(lhi_rank *rank)
{
    if (!rank->free_buffers)
        reclaim(rank);
    lhi_buffer *buffer = rank->free_buffers;
    if (!buffer) {
        rank->n_grown++;
        return make_buffer(rank);
    }
    rank->free_buffers = buffer->next;
    buffer->next = NULL;
    return buffer;
}

void lhi_pool_give(lhi_rank *rank, lhi_buffer *buffer)
{
    buffer->next = rank->free_buffers;
    rank->free_buffers = buffer;
}

void lhi_pool_sent(lhi_rank *rank, lhi_buffer *buffer)
{
    buffer->next = NULL;
    *rank->sending_end = buffer;
    rank->sending_end = &buffer->next;
}

lh_status lhi_pool_drain(lhi_rank *rank, lh_error *err)
{
    while (rank->sending) {
        lhi_buffer *buffer = rank->sending;
        LHI_TRY(
            lhi_net_wait_unless(rank->o.net, &buffer->op, rank->o.stop, err));
        rank->sending = buffer->next;
        lhi_pool_give(rank, buffer);
    }
    rank->sending_end = &rank->sending;
    return LH_OK;
}

bool lhi_pool_make(lhi_rank *rank, uint32_t n)
{
    rank->sending_end = &rank->sending;
    for (uint32_t i = 0; i < n; i++) {
        lhi_buffer *buffer = make_buffer(rank);
        if (!buffer)
            return false;
        lhi_pool_give(rank, buffer);
    }
    return true;
}

static void free_list(lhi_buffer *buffer)
{
    while (buffer) {
        lhi_buffer *next = buffer->next;
        free(buffer->data);
        free(buffer);
        buffer = next;
    }
}

void lhi_pool_free(lhi_rank *rank)
{
    free_list(rank->free_buffers);
    free_list(rank->sending);
}
