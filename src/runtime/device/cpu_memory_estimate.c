/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts a device's memory under a schedule by a dry run of its passes that
 * counts buffers taken and returned. */
#include "base/fail.h"
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_sharding.h"

/* A chunk's buffer counts in the dry run. */
typedef struct chunk_counts {
    lhi_cpu_chunk chunk;
    uint32_t *items_left; /* per microbatch; 0: not resident */
    uint32_t *layer_left; /* per microbatch and layer */
    bool *attached;       /* per layer: recompute buffers attached */
    bool *here;           /* per layer: offload buffers attached */
    uint32_t n_slots, most_slots;
    uint32_t n_blocks, most_blocks; /* storage blocks */
    uint32_t n_keys, most_keys;     /* buffers of sliced sequences' keys */
} chunk_counts;

/* State of the dry run. */
typedef struct dry_run {
    lhi_cpu cpu;
    lhi_arena *mem;
    chunk_counts *chunks;
    /* Recompute buffers in use and their peak; [1]: layers with experts. */
    uint32_t rooms[2][LH_N_LAYER_PARTS], most_rooms[2][LH_N_LAYER_PARTS];
    /* Offload buffers in use and their peak. */
    uint32_t away[2][LH_N_LAYER_PARTS], most_away[2][LH_N_LAYER_PARTS];
} dry_run;

/* Counts the offload buffers of a microbatch's layer as in use, unless they are
 * counted already, and raises the peak of each kind of buffer (dry run that
 * predicts memory). */
static void attach_offload(dry_run *k, chunk_counts *c, uint32_t microbatch,
                           uint32_t layer)
{
    bool *is =
        &c->here[(size_t)microbatch * lhi_cpu_count_layers(&c->chunk) + layer];
    uint32_t *rooms = k->away[c->chunk.moe[layer]];
    uint32_t *most = k->most_away[c->chunk.moe[layer]];
    for (uint32_t i = 0; !*is && i < LH_N_LAYER_PARTS; i++)
        if (c->chunk.offload[layer] >> i & 1 && ++rooms[i] > most[i])
            most[i] = rooms[i];
    *is = true;
}

/* Counts the offload buffers of a microbatch's layer as free again. */
static void detach_offload(dry_run *k, chunk_counts *c, uint32_t microbatch,
                           uint32_t layer)
{
    bool *is =
        &c->here[(size_t)microbatch * lhi_cpu_count_layers(&c->chunk) + layer];
    for (uint32_t i = 0; *is && i < LH_N_LAYER_PARTS; i++)
        k->away[c->chunk.moe[layer]][i] -= c->chunk.offload[layer] >> i & 1;
    *is = false;
}

/* Counts the recompute buffers of a microbatch's layer as in use, unless they
 * already are, and updates the peak. */
static void attach_recompute(dry_run *k, chunk_counts *c, uint32_t microbatch,
                             uint32_t layer)
{
    bool *is =
        &c->attached[(size_t)microbatch * lhi_cpu_count_layers(&c->chunk) +
                     layer];
    uint32_t *rooms = k->rooms[c->chunk.moe[layer]];
    uint32_t *most = k->most_rooms[c->chunk.moe[layer]];
    for (uint32_t i = 0; !*is && i < LH_N_LAYER_PARTS; i++)
        if (c->chunk.recompute[layer] >> i & 1 && ++rooms[i] > most[i])
            most[i] = rooms[i];
    *is = true;
}

/* Counts the recompute buffers of a microbatch's layer as free again. */
static void detach_recompute(dry_run *k, chunk_counts *c, uint32_t microbatch,
                             uint32_t layer)
{
    bool *is =
        &c->attached[(size_t)microbatch * lhi_cpu_count_layers(&c->chunk) +
                     layer];
    for (uint32_t i = 0; *is && i < LH_N_LAYER_PARTS; i++)
        k->rooms[c->chunk.moe[layer]][i] -= c->chunk.recompute[layer] >> i & 1;
    *is = false;
}

/* Counts the buffers of keys, values and their gradients that microbatch m's F
 * or D takes or, at a pass's end, frees, if m is a slice. */
static void count_keys(const dry_run *k, chunk_counts *c, uint32_t m,
                       bool forward, bool ends)
{
    const uint32_t slice = m % k->cpu.n_slices, last = k->cpu.n_slices - 1;
    if (last == 0)
        return;
    if (ends && !forward && slice == 0)
        c->n_keys -= 2;
    if (!ends && slice == (forward ? 0 : last) && ++c->n_keys > c->most_keys)
        c->most_keys = c->n_keys;
}

/* Counts the buffers of microbatch m's forward pass in a dry run: saved
 * activations, offload buffers, and recompute buffers, which are free again at
 * its end. */
static void count_f(dry_run *k, chunk_counts *c, uint32_t m)
{
    uint32_t n = lhi_cpu_count_layers(&c->chunk);
    c->items_left[m] = c->chunk.n_items;
    count_keys(k, c, m, true, false);
    if (++c->n_slots > c->most_slots)
        c->most_slots = c->n_slots;
    for (uint32_t i = 0; i < n; i++) {
        c->layer_left[(size_t)m * n + i] = LHI_LAYER_ITEMS;
        attach_recompute(k, c, m, i);
        attach_offload(k, c, m, i);
        detach_recompute(k, c, m, i);
    }
}

/* Counts an item (a group of weights) as having added its next microbatch's
 * gradient, and the buffers that this frees; mirrors add_next_microbatch() in
 * cpu_weight_gradients.c. */
static void add_next_microbatch(dry_run *k, chunk_counts *c, lhi_cpu_item *item)
{
    uint32_t now = lhi_cpu_nth_summed(&k->cpu, item->done++);
    uint32_t *left =
        &c->layer_left[(size_t)now * lhi_cpu_count_layers(&c->chunk) +
                       item->layer];
    if (lhi_cpu_is_layer_item(item) && *left > 0 && --*left == 0) {
        detach_recompute(k, c, now, item->layer);
        detach_offload(k, c, now, item->layer);
    }
    if (c->items_left[now] > 0 && --c->items_left[now] == 0)
        c->n_slots--;
}

/* Marks an item's gradient (a group of weights) as due for microbatch `m` and
 * counts all microbatches that can be added in order; mirrors request_item()
 * in cpu_weight_gradients.c. */
static void request_item(dry_run *k, chunk_counts *c, lhi_cpu_item *item,
                         uint32_t m)
{
    uint32_t first = 0, n, now;
    item->requested[m] = true;
    if (!c->chunk.shards_by_layer) {
        while (item->done < k->cpu.n_microbatches &&
               item->requested[lhi_cpu_nth_summed(&k->cpu, item->done)])
            add_next_microbatch(k, c, item);
        return;
    }
    n = lhi_cpu_part_items(&c->chunk, lhi_cpu_item_part(&c->chunk, item),
                           &first);
    while (lhi_cpu_part_is_due(&k->cpu, &c->chunk, first, n, &now))
        for (uint32_t i = 0; i < n; i++)
            add_next_microbatch(k, c, &c->chunk.items[first + i]);
}

/* Counts the buffers of microbatch m's D pass. Multi-token prediction modules
 * run before the layers, last one first. `joint`: W follows each layer's D. */
static void count_d(dry_run *k, chunk_counts *c, uint32_t m, bool joint)
{
    count_keys(k, c, m, false, false);
    for (uint32_t i = lhi_cpu_count_layers(&c->chunk); i-- > 0;) {
        attach_recompute(k, c, m, i);
        bool at_once = joint && (i > 0 || c->chunk.n_layers == 0);
        for (uint32_t j = 0; at_once && j < c->chunk.n_items; j++)
            if (lhi_cpu_is_layer_item(&c->chunk.items[j]) &&
                c->chunk.items[j].layer == i)
                request_item(k, c, &c->chunk.items[j], m);
    }
    count_keys(k, c, m, false, true);
}

/* Counts, in a dry run, the buffers around the weight gradients that W pass
 * `pass` requests. */
static void count_w(dry_run *k, chunk_counts *c, const lh_pass *pass)
{
    for (uint32_t j = 0; j < c->chunk.n_items; j++)
        if (lhi_cpu_is_item_in_pass(&c->chunk, &c->chunk.items[j], pass) &&
            !c->chunk.items[j].requested[pass->microbatch])
            request_item(k, c, &c->chunk.items[j], pass->microbatch);
}

/* Returns the index of model chunk `chunk` among this device's n_mine chunks;
 * n_mine: not on this device. */
static uint32_t find_chunk(const dry_run *k, uint32_t n_mine, uint32_t chunk)
{
    uint32_t i = 0;
    while (i < n_mine && k->chunks[i].chunk.chunk != chunk)
        i++;
    return i;
}

/* Counts, in the memory prediction, the buffers that an offload copy's start
 * takes or, with `done`, that its end frees. */
static void count_copy(dry_run *k, uint32_t n_mine,
                       const lhi_offload_copy *copy, bool done)
{
    uint32_t i = find_chunk(k, n_mine, copy->chunk);
    if (i == n_mine || copy->microbatch >= k->cpu.n_microbatches)
        return;
    chunk_counts *c = &k->chunks[i];
    for (uint32_t j = 0; done != copy->to_device && j < c->chunk.n_layers; j++)
        (done ? detach_offload : attach_offload)(k, c, copy->microbatch, j);
    if (!done && !copy->to_device && ++c->n_blocks > c->most_blocks)
        c->most_blocks = c->n_blocks;
    c->n_blocks -= done && copy->to_device;
}

/* Counts one pass's buffers in a dry run; ignores passes of chunks that are not
 * among the device's n_mine. */
static void count_pass(dry_run *k, uint32_t n_mine, const lh_pass *pass)
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

/* Initialises the dry run's buffer counts of the device's chunk number `i` to
 * 0. */
static lh_status make_chunk(dry_run *k, const lhi_cpu_options *o, uint32_t i,
                            lh_error *err)
{
    chunk_counts *c = &k->chunks[i];
    c->chunk = lhi_cpu_init_chunk(o, i);
    c->chunk.shards_by_layer = o->shards_by_layer;
    c->chunk.n_parts = c->chunk.n_layers + c->chunk.is_first + c->chunk.is_last;
    size_t all =
        (size_t)k->cpu.n_microbatches * lhi_cpu_count_layers(&c->chunk);
    c->items_left = LHI_NEW(k->mem, uint32_t, k->cpu.n_microbatches);
    c->layer_left = LHI_NEW(k->mem, uint32_t, all);
    c->attached = LHI_NEW(k->mem, bool, all);
    c->here = LHI_NEW(k->mem, bool, all);
    if (!c->items_left || !c->layer_left || !c->attached || !c->here)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_cpu_build_layer_flags(&k->cpu, k->mem, o, &c->chunk, err));
    LHI_TRY(lhi_cpu_build_items(&k->cpu, k->mem, &c->chunk, err));
    c->chunk.n_sharded_values = (size_t)lhi_cpu_choose_sharded_items(
        &k->cpu, &c->chunk, o->sharded_parameters, &c->chunk.n_sharded_items);
    c->chunk.n_sharded_gradients = (size_t)lhi_cpu_choose_sharded_items(
        &k->cpu, &c->chunk, o->sharded_gradients, &c->chunk.n_sharded_items);
    return LH_OK;
}

/* Adds a chunk's peak bytes (parameters, gradients, activations, scratch) to
 * bytes[] by memory kind. */
static void add_chunk(const dry_run *k, const chunk_counts *c,
                      double bytes[LH_N_MEMORY_KINDS])
{
    const lhi_cpu_chunk *chunk = &c->chunk;
    double values = lhi_cpu_count_chunk_values(&k->cpu, chunk);
    bytes[LH_MEMORY_PARAMETERS] +=
        lhi_cpu_float_bytes(values - (double)chunk->n_sharded_values);
    bytes[LH_MEMORY_GRADIENTS] +=
        lhi_cpu_float_bytes(values - (double)chunk->n_sharded_gradients);
    bytes[LH_MEMORY_ACTIVATIONS] +=
        c->most_slots * lhi_cpu_microbatch_bytes(&k->cpu, chunk) +
        c->most_keys *
            lhi_cpu_float_bytes(lhi_cpu_count_key_floats(&k->cpu, chunk));
    bytes[LH_MEMORY_SCRATCH] += lhi_cpu_chunk_bytes(&k->cpu, chunk);
}

/* Adds the bytes for offloaded activations of all n_mine chunks to bytes[]:
 * buffers on the device, and storage. */
static void add_offload_bytes(const dry_run *k, uint32_t n_mine,
                              double bytes[LH_N_MEMORY_KINDS])
{
    uint32_t layers = 0;
    bool leaves = false;
    for (uint32_t i = 0; i < n_mine; i++) {
        const chunk_counts *c = &k->chunks[i];
        double one = lhi_cpu_compute_offload_bytes(&k->cpu, &c->chunk);
        layers = c->chunk.n_layers > layers ? c->chunk.n_layers : layers;
        leaves = leaves || one > 0;
        if (one > 0)
            bytes[LH_MEMORY_STORAGE] +=
                c->most_blocks * (double)lhi_storage_block_bytes((size_t)one);
    }
    if (leaves)
        bytes[LH_MEMORY_SCRATCH] +=
            lhi_cpu_copy_record_bytes(&k->cpu, n_mine, layers);
    for (uint32_t i = 0; i < 2 * LH_N_LAYER_PARTS; i++) {
        bool moe = i >= LH_N_LAYER_PARTS;
        lh_layer_part part = (lh_layer_part)(i % LH_N_LAYER_PARTS);
        bytes[LH_MEMORY_ACTIVATIONS] +=
            k->most_away[moe][part] * lhi_cpu_part_bytes(&k->cpu, part, moe);
    }
}

/* Counts, in a dry run, the buffers of one step's passes and offload copies, in
 * the order in which lhi_rank_run_step() executes them. */
static void count_step(dry_run *k, uint32_t n_mine, const lh_pass *passes,
                       uint32_t n_passes, const lhi_offload_copy *copies,
                       uint32_t n_copies)
{
    uint32_t begun = 0, done = 0;
    for (uint32_t i = 0; i < n_passes; i++) {
        while (done < begun && copies[done].before <= i)
            count_copy(k, n_mine, &copies[done++], true);
        while (begun < n_copies && copies[begun].to_device &&
               copies[begun].at == i)
            count_copy(k, n_mine, &copies[begun++], false);
        while (done < begun && copies[done].before <= i)
            count_copy(k, n_mine, &copies[done++], true);
        count_pass(k, n_mine, &passes[i]);
        while (begun < n_copies && !copies[begun].to_device &&
               copies[begun].at == i)
            count_copy(k, n_mine, &copies[begun++], false);
    }
}

/* Counts one step's buffers in a dry run, and adds their peak bytes to bytes[]
 * by memory kind. */
static lh_status count(dry_run *k, const lhi_cpu_options *o,
                       const lh_pass *passes, uint32_t n_passes,
                       const lhi_offload_copy *copies, uint32_t n_copies,
                       double bytes[LH_N_MEMORY_KINDS], lh_error *err)
{
    lhi_cpu_compute_shape(&k->cpu, o);
    k->chunks = LHI_NEW(k->mem, chunk_counts, o->n_mine);
    if (!k->chunks)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < o->n_mine; i++)
        LHI_TRY(make_chunk(k, o, i, err));
    count_step(k, o->n_mine, passes, n_passes, copies, n_copies);
    add_offload_bytes(k, o->n_mine, bytes);
    double group = 0;
    size_t partial = 0;
    for (uint32_t i = 0; i < o->n_mine; i++) {
        const lhi_cpu_chunk *chunk = &k->chunks[i].chunk;
        double one = lhi_cpu_group_bytes(&k->cpu, chunk);
        size_t n = lhi_cpu_count_partial_gradients(&k->cpu, chunk);
        group = one > group ? one : group;
        partial = n > partial ? n : partial;
        add_chunk(k, &k->chunks[i], bytes);
    }
    bytes[LH_MEMORY_SCRATCH] += group;
    if (k->cpu.n_tensor_ranks > 1)
        bytes[LH_MEMORY_SCRATCH] += lhi_cpu_float_bytes((double)partial);
    bytes[LH_MEMORY_SCRATCH] += lhi_cpu_scratch_bytes(&k->cpu);
    for (uint32_t i = 0; i < 2 * LH_N_LAYER_PARTS; i++) {
        bool moe = i >= LH_N_LAYER_PARTS;
        lh_layer_part part = (lh_layer_part)(i % LH_N_LAYER_PARTS);
        bytes[LH_MEMORY_SCRATCH] +=
            k->most_rooms[moe][part] * lhi_cpu_part_bytes(&k->cpu, part, moe);
    }
    return LH_OK;
}

/* Counts the expert parameters that are sharded over data-parallel ranks. An
 * expert is sharded together with the weights that produce its rows. */
static size_t count_sharded_experts(const dry_run *k,
                                    const lhi_cpu_chunk *chunk,
                                    const lhi_cpu_options *o)
{
    uint32_t n, layers = 0;
    lhi_cpu_choose_sharded_items(&k->cpu, chunk, o->sharded_parameters, &n);
    for (uint32_t i = 0; i < n; i++) {
        const lhi_cpu_item *item = &chunk->items[i];
        layers += item->kind == LHI_ITEM_GATE_UP && chunk->moe[item->layer];
    }
    return layers * (size_t)lhi_cpu_count_expert_values(&k->cpu);
}

lh_status lhi_cpu_compute_sharded_tensors(const lhi_cpu_options *options,
                                          uint32_t i, lhi_sharded_tensors *out,
                                          lh_error *err)
{
    dry_run k = {.mem = lhi_arena_make(0)};
    if (!k.mem)
        return lhi_fail_nomem(err);
    lhi_cpu_compute_shape(&k.cpu, options);
    k.chunks = LHI_NEW(k.mem, chunk_counts, options->n_mine);
    lh_status status =
        k.chunks ? make_chunk(&k, options, i, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        *out = (lhi_sharded_tensors){
            .values = k.chunks[i].chunk.n_sharded_values,
            .gradients = k.chunks[i].chunk.n_sharded_gradients,
            .expert_values =
                count_sharded_experts(&k, &k.chunks[i].chunk, options)};
    lhi_arena_free(k.mem);
    return status;
}

double lhi_cpu_estimate_offload_bytes(const lhi_cpu_options *options,
                                      uint32_t i)
{
    double bytes = 0;
    const lhi_cpu_chunk chunk = lhi_cpu_init_chunk(options, i);
    const uint32_t first = chunk.first_layer, end = first + chunk.n_layers;
    dry_run k = {.mem = NULL};
    lhi_cpu_compute_shape(&k.cpu, options);
    for (uint32_t layer = first; options->offload && layer < end; layer++) {
        uint32_t again = options->recompute ? options->recompute[layer] : 0;
        uint32_t away = options->offload[layer] ? LH_PART_ALL & ~again : 0;
        bool moe = lh_model_layer_is_moe(options->model, layer);
        const lhi_cpu_chunk one = {
            .n_layers = 1, .offload = &away, .moe = &moe};
        bytes += lhi_cpu_compute_offload_bytes(&k.cpu, &one);
    }
    return bytes;
}

lh_status lhi_cpu_estimate_memory(const lhi_cpu_options *options,
                                  const lh_pass *passes, uint32_t n_passes,
                                  const lhi_offload_copy *copies,
                                  uint32_t n_copies,
                                  double bytes[LH_N_MEMORY_KINDS],
                                  lh_error *err)
{
    dry_run k = {.mem = lhi_arena_make(0)};
    if (!k.mem)
        return lhi_fail_nomem(err);
    lh_status status =
        count(&k, options, passes, n_passes, copies, n_copies, bytes, err);
    lhi_arena_free(k.mem);
    return status;
}
