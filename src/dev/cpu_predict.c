/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts a device's memory under a schedule by a dry run of its passes that
 * counts buffers taken and returned. */
#include "base/fail.h"
#include "dev/cpu_shards.h"

/* A chunk's buffer counts in the dry run. */
typedef struct counted {
    lhi_cpu_chunk chunk;
    uint32_t *items_left; /* per microbatch; 0: not resident */
    uint32_t *layer_left; /* per microbatch and layer */
    bool *attached;       /* per layer: recompute buffers attached */
    bool *here;           /* per layer: offload buffers attached */
    uint32_t n_slots, most_slots;
    uint32_t n_blocks, most_blocks; /* storage blocks */
} counted;

/* State of the dry run. */
typedef struct counter {
    lhi_cpu cpu;
    lhi_arena *mem;
    counted *chunks;
    /* Recompute buffers in use and their peak; [1]: layers with experts. */
    uint32_t rooms[2][LH_N_LAYER_PARTS], most_rooms[2][LH_N_LAYER_PARTS];
    /* Offload buffers in use and their peak. */
    uint32_t away[2][LH_N_LAYER_PARTS], most_away[2][LH_N_LAYER_PARTS];
} counter;

static void take_away(counter *k, counted *c, uint32_t microbatch,
                      uint32_t layer)
{
    bool *is = &c->here[(size_t)microbatch * lhi_cpu_all_layers(&c->chunk) + layer];
    uint32_t *rooms = k->away[c->chunk.moe[layer]];
    uint32_t *most = k->most_away[c->chunk.moe[layer]];
    for (uint32_t i = 0; !*is && i < LH_N_LAYER_PARTS; i++)
        if (c->chunk.away[layer] >> i & 1 && ++rooms[i] > most[i])
            most[i] = rooms[i];
    *is = true;
}

static void give_away(counter *k, counted *c, uint32_t microbatch,
                      uint32_t layer)
{
    bool *is = &c->here[(size_t)microbatch * lhi_cpu_all_layers(&c->chunk) + layer];
    for (uint32_t i = 0; *is && i < LH_N_LAYER_PARTS; i++)
        k->away[c->chunk.moe[layer]][i] -= c->chunk.away[layer] >> i & 1;
    *is = false;
}

static void attach(counter *k, counted *c, uint32_t microbatch, uint32_t layer)
{
    bool *is = &c->attached[(size_t)microbatch * lhi_cpu_all_layers(&c->chunk) + layer];
    uint32_t *rooms = k->rooms[c->chunk.moe[layer]];
    uint32_t *most = k->most_rooms[c->chunk.moe[layer]];
    for (uint32_t i = 0; !*is && i < LH_N_LAYER_PARTS; i++)
        if (c->chunk.again[layer] >> i & 1 && ++rooms[i] > most[i])
            most[i] = rooms[i];
    *is = true;
}

static void detach(counter *k, counted *c, uint32_t microbatch, uint32_t layer)
{
    bool *is = &c->attached[(size_t)microbatch * lhi_cpu_all_layers(&c->chunk) + layer];
    for (uint32_t i = 0; *is && i < LH_N_LAYER_PARTS; i++)
        k->rooms[c->chunk.moe[layer]][i] -= c->chunk.again[layer] >> i & 1;
    *is = false;
}

static void count_f(counter *k, counted *c, uint32_t m)
{
    uint32_t n = lhi_cpu_all_layers(&c->chunk);
    c->items_left[m] = c->chunk.n_items;
    if (++c->n_slots > c->most_slots)
        c->most_slots = c->n_slots;
    for (uint32_t i = 0; i < n; i++) {
        c->layer_left[(size_t)m * n + i] = LHI_LAYER_ITEMS;
        attach(k, c, m, i);
        take_away(k, c, m, i);
        detach(k, c, m, i);
    }
}

/* Mirrors add_next_microbatch() in cpu_weight_gradients.c. */
static void take_next(counter *k, counted *c, lhi_cpu_item *item)
{
    uint32_t now = item->done++;
    uint32_t *left =
        &c->layer_left[(size_t)now * lhi_cpu_all_layers(&c->chunk) +
                       item->layer];
    if (lhi_cpu_in_layer(item) && *left > 0 && --*left == 0) {
        detach(k, c, now, item->layer);
        give_away(k, c, now, item->layer);
    }
    if (c->items_left[now] > 0 && --c->items_left[now] == 0)
        c->n_slots--;
}

/* Mirrors request_item() in cpu_weight_gradients.c. */
static void ask(counter *k, counted *c, lhi_cpu_item *item, uint32_t m)
{
    uint32_t first = 0, n, now;
    item->asked[m] = true;
    if (!c->chunk.by_layer) {
        while (item->done < k->cpu.n_microbatches && item->asked[item->done])
            take_next(k, c, item);
        return;
    }
    n = lhi_cpu_part_items(&c->chunk, lhi_cpu_part_of(&c->chunk, item), &first);
    while (lhi_cpu_part_is_due(&c->chunk, first, n, k->cpu.n_microbatches,
                               &now))
        for (uint32_t i = 0; i < n; i++)
            take_next(k, c, &c->chunk.items[first + i]);
}

/* Counts a D pass. Modules run before the layers, last one first. */
static void count_d(counter *k, counted *c, uint32_t m, bool joint)
{
    for (uint32_t i = lhi_cpu_all_layers(&c->chunk); i-- > 0;) {
        attach(k, c, m, i);
        bool at_once = joint && (i > 0 || c->chunk.n_layers == 0);
        for (uint32_t j = 0; at_once && j < c->chunk.n_items; j++)
            if (lhi_cpu_in_layer(&c->chunk.items[j]) &&
                c->chunk.items[j].layer == i)
                ask(k, c, &c->chunk.items[j], m);
    }
}

static void count_w(counter *k, counted *c, const lh_pass *pass)
{
    for (uint32_t j = 0; j < c->chunk.n_items; j++)
        if (lhi_cpu_in_part(&c->chunk, &c->chunk.items[j], pass) &&
            !c->chunk.items[j].asked[pass->microbatch])
            ask(k, c, &c->chunk.items[j], pass->microbatch);
}

static uint32_t find_chunk(const counter *k, uint32_t n_mine, uint32_t chunk)
{
    uint32_t i = 0;
    while (i < n_mine && k->chunks[i].chunk.chunk != chunk)
        i++;
    return i;
}

/* Counts the start or the end of a copy. */
static void count_copy(counter *k, uint32_t n_mine, const lhi_offload *copy,
                       bool done)
{
    uint32_t i = find_chunk(k, n_mine, copy->chunk);
    if (i == n_mine || copy->microbatch >= k->cpu.n_microbatches)
        return;
    counted *c = &k->chunks[i];
    for (uint32_t j = 0; done != copy->is_back && j < c->chunk.n_layers; j++)
        (done ? give_away : take_away)(k, c, copy->microbatch, j);
    if (!done && !copy->is_back && ++c->n_blocks > c->most_blocks)
        c->most_blocks = c->n_blocks;
    c->n_blocks -= done && copy->is_back;
}

static void count_pass(counter *k, uint32_t n_mine, const lh_pass *pass)
{
    uint32_t i = find_chunk(k, n_mine, pass->chunk), m = pass->microbatch;
    if (i == n_mine || m >= k->cpu.n_microbatches)
        return;
    if (pass->kind == LH_F)
        count_f(k, &k->chunks[i], m);
    else if (pass->kind != LH_W)
        count_d(k, &k->chunks[i], m, pass->kind == LH_B);
    if (pass->kind == LH_W || pass->kind == LH_B)
        count_w(k, &k->chunks[i], pass);
}

static lh_status make_chunk(counter *k, const lhi_cpu_options *o, uint32_t i,
                            lh_error *err)
{
    counted *c = &k->chunks[i];
    c->chunk = lhi_cpu_chunk_of(o, i);
    c->chunk.by_layer = o->by_layer;
    c->chunk.n_parts =
        c->chunk.n_layers + c->chunk.is_first + c->chunk.is_last;
    size_t all =
        (size_t)k->cpu.n_microbatches * lhi_cpu_all_layers(&c->chunk);
    c->items_left = LHI_NEW(k->mem, uint32_t, k->cpu.n_microbatches);
    c->layer_left = LHI_NEW(k->mem, uint32_t, all);
    c->attached = LHI_NEW(k->mem, bool, all);
    c->here = LHI_NEW(k->mem, bool, all);
    if (!c->items_left || !c->layer_left || !c->attached || !c->here)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_cpu_layers(&k->cpu, k->mem, o, &c->chunk, err));
    LHI_TRY(lhi_cpu_items(&k->cpu, k->mem, &c->chunk, err));
    c->chunk.n_sharded_values = (size_t)lhi_cpu_split(
        &k->cpu, &c->chunk, o->sharded_parameters, &c->chunk.n_sharded_items);
    c->chunk.n_sharded_gradients = (size_t)lhi_cpu_split(
        &k->cpu, &c->chunk, o->sharded_gradients, &c->chunk.n_sharded_items);
    return LH_OK;
}

static void add_chunk(const counter *k, const counted *c,
                      double bytes[LH_N_MEMORY_KINDS])
{
    const lhi_cpu_chunk *chunk = &c->chunk;
    double values = lhi_cpu_values(&k->cpu, chunk);
    bytes[LH_MEMORY_PARAMETERS] +=
        lhi_cpu_float_bytes(values - (double)chunk->n_sharded_values);
    bytes[LH_MEMORY_GRADIENTS] +=
        lhi_cpu_float_bytes(values - (double)chunk->n_sharded_gradients);
    bytes[LH_MEMORY_ACTIVATIONS] +=
        c->most_slots * lhi_cpu_slot_bytes(&k->cpu, chunk);
    bytes[LH_MEMORY_SCRATCH] += lhi_cpu_chunk_bytes(&k->cpu, chunk);
}

/* Adds the memory for offload: buffers here, and storage. */
static void add_away(const counter *k, uint32_t n_mine,
                     double bytes[LH_N_MEMORY_KINDS])
{
    uint32_t layers = 0;
    bool leaves = false;
    for (uint32_t i = 0; i < n_mine; i++) {
        const counted *c = &k->chunks[i];
        double one = lhi_cpu_away_bytes(&k->cpu, &c->chunk);
        layers = c->chunk.n_layers > layers ? c->chunk.n_layers : layers;
        leaves = leaves || one > 0;
        if (one > 0)
            bytes[LH_MEMORY_STORAGE] +=
                c->most_blocks * (double)lhi_storage_room((size_t)one);
    }
    if (leaves)
        bytes[LH_MEMORY_SCRATCH] +=
            lhi_cpu_copies_bytes(&k->cpu, n_mine, layers);
    for (uint32_t i = 0; i < 2 * LH_N_LAYER_PARTS; i++) {
        bool moe = i >= LH_N_LAYER_PARTS;
        lh_layer_part part = (lh_layer_part)(i % LH_N_LAYER_PARTS);
        bytes[LH_MEMORY_ACTIVATIONS] +=
            k->most_away[moe][part] * lhi_cpu_part_bytes(&k->cpu, part, moe);
    }
}

/* Counts one step in the order in which lhi_rank_step() executes it. */
static void count_step(counter *k, uint32_t n_mine, const lh_pass *passes,
                       uint32_t n_passes, const lhi_offload *copies,
                       uint32_t n_copies)
{
    uint32_t begun = 0, done = 0;
    for (uint32_t i = 0; i < n_passes; i++) {
        while (done < begun && copies[done].before <= i)
            count_copy(k, n_mine, &copies[done++], true);
        while (begun < n_copies && copies[begun].is_back &&
               copies[begun].at == i)
            count_copy(k, n_mine, &copies[begun++], false);
        count_pass(k, n_mine, &passes[i]);
        while (begun < n_copies && !copies[begun].is_back &&
               copies[begun].at == i)
            count_copy(k, n_mine, &copies[begun++], false);
    }
}

/* Runs the dry run over one step and adds up the peaks by memory kind. */
static lh_status count(counter *k, const lhi_cpu_options *o,
                       const lh_pass *passes, uint32_t n_passes,
                       const lhi_offload *copies, uint32_t n_copies,
                       double bytes[LH_N_MEMORY_KINDS], lh_error *err)
{
    lhi_cpu_shape(&k->cpu, o);
    k->chunks = LHI_NEW(k->mem, counted, o->n_mine);
    if (!k->chunks)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < o->n_mine; i++)
        LHI_TRY(make_chunk(k, o, i, err));
    count_step(k, o->n_mine, passes, n_passes, copies, n_copies);
    add_away(k, o->n_mine, bytes);
    double group = 0;
    size_t partial = 0;
    for (uint32_t i = 0; i < o->n_mine; i++) {
        const lhi_cpu_chunk *chunk = &k->chunks[i].chunk;
        double one = lhi_cpu_group_bytes(&k->cpu, chunk);
        size_t n = lhi_cpu_count_partial(&k->cpu, chunk);
        group = one > group ? one : group;
        partial = n > partial ? n : partial;
        add_chunk(k, &k->chunks[i], bytes);
    }
    bytes[LH_MEMORY_SCRATCH] += group;
    if (k->cpu.n_tensor > 1)
        bytes[LH_MEMORY_SCRATCH] += lhi_cpu_float_bytes((double)partial);
    bytes[LH_MEMORY_SCRATCH] += lhi_cpu_scratch_bytes(&k->cpu);
    for (uint32_t i = 0; i < 2 * LH_N_LAYER_PARTS; i++) {
        bool moe = i >= LH_N_LAYER_PARTS;
        lh_layer_part part = (lh_layer_part)(i % LH_N_LAYER_PARTS);
        bytes[LH_MEMORY_SCRATCH] += k->most_rooms[moe][part] *
                                    lhi_cpu_part_bytes(&k->cpu, part, moe);
    }
    return LH_OK;
}

/* Counts the sharded expert values: an expert is sharded together with the item
 * that produces its rows. */
static size_t sharded_experts(const counter *k, const lhi_cpu_chunk *chunk,
                              const lhi_cpu_options *o)
{
    uint32_t n, layers = 0;
    lhi_cpu_split(&k->cpu, chunk, o->sharded_parameters, &n);
    for (uint32_t i = 0; i < n; i++) {
        const lhi_cpu_item *item = &chunk->items[i];
        layers += item->kind == LHI_ITEM_GATE_UP && chunk->moe[item->layer];
    }
    return layers * (size_t)lhi_cpu_expert_values(&k->cpu);
}

lh_status lhi_cpu_sharded(const lhi_cpu_options *options, uint32_t i,
                          lhi_sharded_tensors *out, lh_error *err)
{
    counter k = {.mem = lhi_arena_make(0)};
    if (!k.mem)
        return lhi_fail_nomem(err);
    lhi_cpu_shape(&k.cpu, options);
    k.chunks = LHI_NEW(k.mem, counted, options->n_mine);
    lh_status status =
        k.chunks ? make_chunk(&k, options, i, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        *out = (lhi_sharded_tensors){
            .values = k.chunks[i].chunk.n_sharded_values,
            .gradients = k.chunks[i].chunk.n_sharded_gradients,
            .expert_values =
                sharded_experts(&k, &k.chunks[i].chunk, options)};
    lhi_arena_free(k.mem);
    return status;
}

double lhi_cpu_offloaded(const lhi_cpu_options *options, uint32_t i)
{
    double bytes = 0;
    uint32_t c = options->mine[i];
    counter k = {.mem = NULL};
    lhi_cpu_shape(&k.cpu, options);
    for (uint32_t layer = options->first_layers[c];
         options->offload && layer < options->first_layers[c + 1]; layer++) {
        uint32_t again = options->again ? options->again[layer] : 0;
        uint32_t away = options->offload[layer] ? LH_PART_ALL & ~again : 0;
        bool moe = lh_model_layer_is_moe(options->model, layer);
        const lhi_cpu_chunk one = {.n_layers = 1, .away = &away, .moe = &moe};
        bytes += lhi_cpu_away_bytes(&k.cpu, &one);
    }
    return bytes;
}

lh_status lhi_cpu_predict(const lhi_cpu_options *options, const lh_pass *passes,
                          uint32_t n_passes, const lhi_offload *copies,
                          uint32_t n_copies, double bytes[LH_N_MEMORY_KINDS],
                          lh_error *err)
{
    counter k = {.mem = lhi_arena_make(0)};
    if (!k.mem)
        return lhi_fail_nomem(err);
    lh_status status =
        count(&k, options, passes, n_passes, copies, n_copies, bytes, err);
    lhi_arena_free(k.mem);
    return status;
}
