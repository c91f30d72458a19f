/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a job's canonical text. */
#include "format/job/job_values.h"
#include "format/job/parse.h"

#include <stdio.h>
#include <string.h>

/* Sets a key to a number; false on allocation failure. */
static bool set_number(json_t *map, const char *key, double value)
{
    return lhi_json_set(map, key, lhi_json_number(value));
}

/* Sets a key to a time in units of unit_ns, rounded to 15 digits; false on
 * allocation failure. */
static bool set_time(json_t *map, const char *key, int64_t ns, double unit_ns)
{
    return set_number(map, key, lhi_round15((double)ns / unit_ns));
}

/* Sets a key to a count, unless it is 0 (not given); false on allocation
 * failure. */
static bool set_count(json_t *map, const char *key, uint32_t count)
{
    return count == 0 || lhi_json_set(map, key, json_integer(count));
}

/* Converts the recomputation to a word or a module list. */
static json_t *recompute_to_json(const lh_training *t)
{
    json_t *list;
    bool ok;
    if (t->recompute != LH_RECOMPUTE_MODULES)
        return json_string(lh_recompute_name(t->recompute));
    list = json_array();
    ok = list != NULL;
    for (uint32_t i = 0; i < LH_N_MODULES && ok; i++)
        if (t->recompute_modules >> i & 1)
            ok = json_array_append_new(
                     list, json_string(lh_module_name((lh_module)i))) == 0;
    return lhi_json_finish(list, ok);
}

/* Converts the offloading to a fraction, or to a map if a storage bandwidth is
 * given. */
static json_t *offload_to_json(const lh_training *t)
{
    json_t *map;
    if (t->offload_bytes_per_s == 0)
        return lhi_json_number(t->offload_share);
    map = json_object();
    return lhi_json_finish(
        map,
        map && lhi_json_set(map, "layers", lhi_json_number(t->offload_share)) &&
            set_number(map, "storage_gbps",
                       lhi_round15(t->offload_bytes_per_s / 1e9)));
}

/* Converts the training settings to JSON, without optional keys that were not
 * given. */
static json_t *training_to_json(const lh_training *t)
{
    json_t *map = json_object();
    bool ok =
        map &&
        lhi_json_set(map, "global_batch", json_integer(t->global_batch)) &&
        lhi_json_set(map, "sequence", json_integer(t->sequence)) &&
        lhi_json_set(map, "precision",
                     json_string(lh_precision_name(t->precision))) &&
        lhi_json_set(map, "optimizer",
                     json_string(lhi_optimizer_name(t->optimizer))) &&
        (!t->zero_given || lhi_json_set(map, "zero", json_integer(t->zero))) &&
        (!t->recompute_given ||
         lhi_json_set(map, "recompute", recompute_to_json(t))) &&
        (!t->dropout_given ||
         lhi_json_set(map, "dropout",
                      t->dropout_rate > 0 ? lhi_json_number(t->dropout_rate)
                                          : json_boolean(t->dropout))) &&
        (!t->balance_loss_given ||
         lhi_json_set(map, "balance_loss", lhi_json_number(t->balance_loss))) &&
        (!t->balance_bias_given ||
         lhi_json_set(map, "balance_bias", lhi_json_number(t->balance_bias))) &&
        (t->expert_capacity == 0 ||
         lhi_json_set(map, "expert_capacity",
                      lhi_json_number(t->expert_capacity))) &&
        (t->imbalance <= 1 ||
         lhi_json_set(map, "imbalance", lhi_json_number(t->imbalance))) &&
        (t->offload_share == 0 ||
         lhi_json_set(map, "offload", offload_to_json(t))) &&
        (t->rings == LH_RING_LOCKSTEP ||
         lhi_json_set(map, "rings", json_string("pipelined"))) &&
        ((!t->dispatcher_given && t->dispatcher == LH_DISPATCHER_ALL_TO_ALL) ||
         lhi_json_set(map, "dispatcher",
                      json_string(lhi_dispatcher_names[t->dispatcher])));
    return lhi_json_finish(map, ok);
}

/* Checks whether two numbers that are not NaN are equal, without a
 * floating-point equality warning. */
static bool is_same_number(double a, double b)
{
    return !(a < b) && !(a > b);
}

/* Checks whether parsing a GPU preset's name alone yields this GPU. */
static bool is_preset(const lh_gpu *gpu, lh_precision precision)
{
    if (!gpu->preset || !lhi_gpu_preset_supports(gpu->preset, precision))
        return false;
    const lh_gpu *preset = lh_gpu_preset(gpu->preset);
    return preset && is_same_number(gpu->tflops, preset->tflops) &&
           is_same_number(gpu->fp8_tflops, preset->fp8_tflops) &&
           is_same_number(gpu->sustained_tflops, 0) &&
           is_same_number(gpu->sustained_fp8_tflops, 0) &&
           is_same_number(gpu->memory_gib, preset->memory_gib) &&
           is_same_number(gpu->memory_gbps, preset->memory_gbps) &&
           is_same_number(gpu->efficiency, preset->efficiency);
}

/* Converts a GPU to its preset's name, or to a map if it differs from the
 * preset. */
static json_t *gpu_to_json(const lh_gpu *gpu, lh_precision precision)
{
    if (is_preset(gpu, precision))
        return json_string(gpu->preset);
    json_t *map = json_object();
    bool ok =
        map &&
        lhi_json_set(map, gpu->preset ? "preset" : "name",
                     json_string(gpu->preset ? gpu->preset : gpu->name)) &&
        set_number(map, "tflops", gpu->tflops) &&
        (is_same_number(gpu->fp8_tflops, 0) ||
         set_number(map, "fp8_tflops", gpu->fp8_tflops)) &&
        (is_same_number(gpu->sustained_tflops, 0) ||
         set_number(map, "sustained_tflops", gpu->sustained_tflops)) &&
        (is_same_number(gpu->sustained_fp8_tflops, 0) ||
         set_number(map, "sustained_fp8_tflops", gpu->sustained_fp8_tflops)) &&
        set_number(map, "memory_gib", gpu->memory_gib) &&
        set_number(map, "memory_gbps", gpu->memory_gbps) &&
        (is_same_number(gpu->efficiency, 0) ||
         set_number(map, "efficiency", gpu->efficiency));
    return lhi_json_finish(map, ok);
}

/* Sets `memory_reserve` to the datacenter's reserve if it is not the default;
 * false on allocation failure. */
static bool set_reserve(json_t *map, const lh_gpu *gpu)
{
    char share[48];
    if (gpu->reserve_gib > 0)
        return set_number(map, "memory_reserve", gpu->reserve_gib);
    if (is_same_number(gpu->reserve_percent, LH_MEMORY_RESERVE_PERCENT))
        return true;
    snprintf(share, sizeof share, "%.15g%%", gpu->reserve_percent);
    return lhi_json_set(map, "memory_reserve", json_string(share));
}

/* Sets a key to a network, unless its bandwidth is 0; false on allocation
 * failure. */
static bool set_network(json_t *map, const char *key, const lh_network *network)
{
    if (is_same_number(network->gbps, 0))
        return true;
    json_t *value = json_object();
    bool ok =
        value && set_number(value, "gbps", network->gbps) &&
        set_time(value, "latency_us", network->latency_ns, 1e3) &&
        (is_same_number(network->oversubscription, 0) ||
         set_number(value, "oversubscription", network->oversubscription));
    return lhi_json_set(map, key, lhi_json_finish(value, ok));
}

/* Sets a key to a price, unless it is 0; false on allocation failure. */
static bool set_price(json_t *map, const char *key, double usd)
{
    return is_same_number(usd, 0) || set_number(map, key, usd);
}

/* Checks whether two zones belong to the same datacenter; zones of one
 * datacenter are consecutive. */
static bool have_same_site(const lh_datacenter *a, const lh_datacenter *b)
{
    return a == b || (a->zone_of && b->zone_of && a->zone_of == b->zone_of);
}

/* Writes a datacenter's zones, the first of which is the job's i-th. */
static json_t *zones_to_json(const lh_job *job, uint32_t i)
{
    const lh_datacenter *first = &job->datacenters[i];
    size_t prefix = strlen(first->zone_of) + 1;
    json_t *list = json_array();
    for (; list && i < job->n_datacenters; i++) {
        const lh_datacenter *zone = &job->datacenters[i];
        json_t *map;
        if (!have_same_site(first, zone))
            break;
        map = json_object();
        bool ok = map &&
                  lhi_json_set(map, "name", json_string(zone->name + prefix)) &&
                  lhi_json_set(map, "nodes", json_integer(zone->nodes));
        if (json_array_append_new(list, lhi_json_finish(map, ok))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Sets in a JSON map a datacenter's name and its nodes, or its zones and the
 * network between them; `i`: index of its first zone in the job. Returns false
 * on allocation failure. */
static bool set_place(json_t *map, const lh_job *job, uint32_t i)
{
    const lh_datacenter *site = &job->datacenters[i];
    if (!site->zone_of)
        return lhi_json_set(map, "name", json_string(site->name)) &&
               lhi_json_set(map, "nodes", json_integer(site->nodes));
    return lhi_json_set(map, "name", json_string(site->zone_of)) &&
           lhi_json_set(map, "zones", zones_to_json(job, i)) &&
           set_network(map, "zone_link", &site->zone_link);
}

/* Converts the datacenter of the job's i-th zone to JSON. */
static json_t *site_to_json(const lh_job *job, uint32_t i)
{
    const lh_datacenter *site = &job->datacenters[i];
    lh_precision precision = job->training.precision;
    json_t *map = json_object();
    bool ok =
        map && set_place(map, job, i) &&
        lhi_json_set(map, "gpus_per_node", json_integer(site->gpus_per_node)) &&
        lhi_json_set(map, "gpu", gpu_to_json(&site->gpu, precision)) &&
        set_reserve(map, &site->gpu) &&
        set_network(map, "node_link", &site->node_link) &&
        set_network(map, "fabric", &site->fabric) &&
        set_price(map, "usd_per_gpu_hour", site->usd_per_gpu_hour);
    return lhi_json_finish(map, ok);
}

/* Converts the link from datacenter `from` to datacenter `to` to JSON. */
static json_t *link_to_json(const lh_job *job, uint32_t from, uint32_t to)
{
    const lh_datacenter *a = &job->datacenters[from],
                        *b = &job->datacenters[to];
    const lhi_job_link link = {
        a->zone_of ? a->zone_of : a->name, b->zone_of ? b->zone_of : b->name,
        job->wans[(size_t)from * job->n_datacenters + to]};
    return lhi_schema_write(&lhi_job_link_schema, &link, NULL);
}

/* Checks whether datacenter entry `i` of the job is a whole datacenter or the
 * first of its zones; zones of one datacenter are consecutive. */
static bool is_first_zone(const lh_job *job, uint32_t i)
{
    const lh_datacenter *dcs = job->datacenters;
    return i == 0 || !have_same_site(&dcs[i - 1], &dcs[i]);
}

/* Appends all datacenters; false on allocation failure. */
static bool add_sites(json_t *list, const lh_job *job)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (is_first_zone(job, i) &&
            json_array_append_new(list, site_to_json(job, i)))
            return false;
    return true;
}

/* Appends the links between all pairs of datacenters; false on allocation
 * failure. */
static bool add_links(json_t *list, const lh_job *job)
{
    for (uint32_t a = 0; a < job->n_datacenters; a++)
        for (uint32_t b = 0; b < job->n_datacenters; b++)
            if (is_first_zone(job, a) && is_first_zone(job, b) && a != b &&
                json_array_append_new(list, link_to_json(job, a, b)))
                return false;
    return true;
}

/* Converts the job's cluster to JSON: GPUs, datacenters and the links between
 * them. NULL if allocation fails. */
static json_t *cluster_to_json(const lh_job *job)
{
    json_t *map = json_object();
    json_t *sites = json_array(), *links = json_array();
    bool ok = map && sites && links && add_sites(sites, job) &&
              add_links(links, job) &&
              !json_object_set(map, "datacenters", sites) &&
              !json_object_set(map, "links", links);
    json_decref(sites);
    json_decref(links);
    return lhi_json_finish(map, ok);
}

/* Converts the layers per chunk to a list. */
static json_t *layers_to_json(const lh_layout *l)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < l->n_chunk_layers; i++)
        ok = !json_array_append_new(list, json_integer(l->chunk_layers[i]));
    return lhi_json_finish(list, ok);
}

/* Converts the layout's fixed values to JSON. */
static json_t *layout_to_json(const lh_job *job)
{
    const lh_layout *l = &job->layout;
    json_t *map = json_object();
    bool ok =
        map &&
        (l->tensor_per_site
             ? lhi_json_set(map, "tensor", json_string(LHI_TENSOR_PER_SITE))
             : set_count(map, "tensor", l->tensor)) &&
        set_count(map, "context", l->context) &&
        set_count(map, "expert", l->expert) &&
        set_count(map, "expert_tensor", l->expert_tensor) &&
        set_count(map, "pipeline", l->pipeline) &&
        set_count(map, "data", l->data) &&
        set_count(map, "micro_batch", l->micro_batch) &&
        set_count(map, "chunks_per_device", l->chunks_per_device) &&
        (l->outermost == LH_OUTERMOST_ANY ||
         lhi_json_set(map, "outermost",
                      json_string(lh_outermost_name(l->outermost)))) &&
        (l->rank_order == LH_OUTERMOST_ANY ||
         lhi_json_set(map, "rank_order",
                      json_string(lh_outermost_name(l->rank_order)))) &&
        (l->packing == LH_PACKING_ANY ||
         lhi_json_set(map, "packing",
                      json_string(lh_packing_name(l->packing)))) &&
        (l->sharding == LH_SHARDING_ANY ||
         lhi_json_set(map, "sharding",
                      json_string(lh_sharding_name(l->sharding)))) &&
        ((job->target == LH_TARGET_ANY &&
          lhi_framework_find_target(&job->framework) == LH_TARGET_ANY) ||
         lhi_json_set(map, "framework",
                      json_string(lhi_target_name(job->target)))) &&
        (!l->schedule ||
         lhi_json_set(map, "schedule", json_string(l->schedule))) &&
        (!l->sites || lhi_json_set(map, "sites", lhi_sites_to_json(job, l))) &&
        (!l->chunk_layers || lhi_json_set(map, "layers", layers_to_json(l))) &&
        set_count(map, "mtp_chunk", l->mtp_chunk) &&
        (l->slices == LHI_SLICES_AUTO
             ? lhi_json_set(map, "slices", json_string("auto"))
             : set_count(map, "slices", l->slices));
    return lhi_json_finish(map, ok);
}

/* Converts a model to its preset's name or to a map. */
static json_t *model_to_json(const lh_model *model)
{
    if (lh_model_preset(model->name) == model)
        return json_string(model->name);
    return lhi_model_to_json(model);
}

json_t *lhi_job_to_json(const lh_job *job)
{
    json_t *map = json_object();
    bool ok = map && lhi_json_set(map, "longhaul", json_string("job/1")) &&
              lhi_json_set(map, "model", model_to_json(job->model)) &&
              lhi_json_set(map, "training", training_to_json(&job->training)) &&
              (!job->framework.given ||
               lhi_json_set(map, "framework", lhi_framework_to_json(job))) &&
              lhi_json_set(map, "cluster", cluster_to_json(job)) &&
              lhi_json_set(map, "layout", layout_to_json(job)) &&
              (!job->profile ||
               lhi_json_set(map, "profile", lhi_profile_to_json(job->profile)));
    return lhi_json_finish(map, ok);
}

lh_status lh_job_format(const lh_job *job, char **text, size_t *len,
                        lh_error *err)
{
    return lhi_json_format(lhi_job_to_json(job), text, len, err);
}
