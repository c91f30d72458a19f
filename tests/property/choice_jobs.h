/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded random jobs with realistic parameters: dense and MoE models, and 4 to
 * 256 GPUs in nodes with 1 to 8 GPUs on one to four sites. Sites are equal or
 * different, near or far, with ample or scarce memory. A job can be varied by
 * fixing a dimension or by adding resources. */
#ifndef CHOICE_JOBS_H
#define CHOICE_JOBS_H

#include "test.h"

#include "base/random.h"

#include <longhaul/experimental/plan.h>
#include <stdlib.h>

enum {
    MAX_DATACENTERS = 5,
    MOST_GIVEN = 12
}; /* sites: one more than sampled */

/* A key in the job's `training`, `framework` or `layout` section. */
typedef struct job_key {
    const char *where, *key;
    /* A site's nodes and GPU type. */
    char value[64];
} job_key;

typedef struct job_site {
    uint32_t nodes;
    double tflops, memory_gib, memory_gbps;
} job_site;

/* All parameters of a job. */
typedef struct job_parts {
    uint32_t n_sites, gpus_per_node, n_given;
    job_site sites[MAX_DATACENTERS];
    uint32_t batch, sequence;
    double latency_ms, gbps; /* first link; other links are multiples of it */
    double fabric_gbps;
    char model[400]; /* as written in the job file */
    bool experts;
    /* Upper limits for sampled jobs. */
    job_key given[MOST_GIVEN];
} job_parts;

typedef struct job_size {
    uint32_t gpus, layers, batch; /* maxima; the minima are 4, 4 and 8 */
} job_size;

/* Samples an integer from `least` to `most`, inclusive. */
/* --- sampling ------------------------------------------------------------- */

static inline uint32_t draw(lhi_random *r, uint32_t least, uint32_t most)
{
    /* Returns true with the given probability, in percent. */
    return least + lhi_random_below(r, most - least + 1);
}

static inline bool draw_chance(lhi_random *r, uint32_t percent)
{
    /* Samples log-uniformly from `least` to `most`, rounded to one decimal
     * place, below 1 to two. */
    return lhi_random_below(r, 100) < percent;
}

static inline double draw_wide(lhi_random *r, double least, double most)
{
    double x = lhi_random_below(r, 1000) / 999.0;
    double v = least * pow(most / least, x);
    return v < 1 ? round(v * 100) / 100 : round(v * 10) / 10;
}

#define DRAW_OF(r, list)                                                       \
    (list)[lhi_random_below(r, sizeof(list) / sizeof *(list))]

/* Adds a key. Returns false if the job has a key with that name already. */
static inline bool job_give(job_parts *p, const char *where, const char *key,
                            const char *value)
{
    for (uint32_t i = 0; i < p->n_given; i++)
        if (strcmp(p->given[i].key, key) == 0)
            return false;
    job_key *k = &p->given[p->n_given++];
    k->where = where;
    k->key = key;
    snprintf(k->value, sizeof k->value, "%s", value);
    /* Counts the job's GPUs. */
    return true;
}

static inline uint32_t job_gpus(const job_parts *p)
{
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < p->n_sites; i++)
        nodes += p->sites[i].nodes;
    return nodes * p->gpus_per_node;
}

/* Samples a model. Returns its approximate parameter count, in billions. */
static inline double draw_model(lhi_random *r, const job_size *size,
                                job_parts *p)
{
    static const uint32_t hidden[] = {1024, 2048, 2560, 3072, 4096, 5120, 8192};
    static const uint32_t vocab[] = {32000, 50304, 128256, 151936};
    static const uint32_t each[] = {512, 768, 1024, 1408, 2048};
    uint32_t layers = draw(r, 4, size->layers), h = DRAW_OF(r, hidden);
    bool gated = draw_chance(r, 70);
    uint32_t ffn = gated ? h * 11 / 4 / 256 * 256 : 4 * h;
    uint32_t v = DRAW_OF(r, vocab), heads = h / 128;
    uint32_t kv = draw_chance(r, 50) && heads % 8 == 0 ? 8 : heads;
    char experts[200] = "";
    double mlp = (gated ? 3.0 : 2.0) * h * ffn, dense = 0;
    p->experts = draw_chance(r, 40);
    if (p->experts) {
        uint32_t n = 8u << draw(r, 0, 3), width = DRAW_OF(r, each);
        uint32_t of = 1u << draw(r, 0, 3), first = draw(r, 0, 3) % 3;
        uint32_t shared = draw_chance(r, 30) ? width : 0;
        snprintf(experts, sizeof experts,
                 ", experts: %u, experts_per_token: %u, expert_ffn: %u, "
                 "shared_expert_ffn: %u, dense_layers: %u",
                 n, of, width, shared, first);
        dense = first * mlp;
        mlp = (gated ? 3.0 : 2.0) * h * width * n;
    }
    snprintf(p->model, sizeof p->model,
             "{layers: %u, hidden: %u, ffn: %u, heads: %u, kv_heads: %u, "
             "vocab: %u, gated: %s, tied_embeddings: %s%s}",
             layers, h, ffn, heads, kv, v, gated ? "true" : "false",
             draw_chance(r, 20) ? "true" : "false", experts);
    /* Samples the sites and their nodes. */
    return (layers * (mlp + 3.0 * h * h) + dense + 2.0 * v * h) / 1e9;
}

static inline void draw_sites(lhi_random *r, const job_size *size, job_parts *p)
{
    static const uint32_t per_node[] = {1, 2, 4, 4, 8, 8, 8, 6};
    p->n_sites = draw(r, 1, MAX_DATACENTERS - 1);
    p->gpus_per_node = DRAW_OF(r, per_node);
    double gpus = draw_wide(r, 4, size->gpus);
    bool alike = draw_chance(r, 50);
    for (uint32_t i = 0; i < p->n_sites; i++) {
        double part = gpus / p->gpus_per_node / p->n_sites;
        if (!alike || i == 0)
            part *= draw(r, 6, 14) / 10.0;
        p->sites[i].nodes = part < 1 ? 1 : (uint32_t)part;
        if (alike)
            p->sites[i].nodes = p->sites[0].nodes;
        /* Samples each site's GPU type and memory for a model with that many
         * billions of parameters. */
    }
}

static inline void draw_gpus(lhi_random *r, job_parts *p, double billions)
{
    static const job_site kinds[] = {{0, 989.5, 80, 3350},
                                     {0, 312, 80, 2039},
                                     {0, 312, 40, 1555},
                                     {0, 989.5, 141, 4800},
                                     {0, 125, 32, 900}};
    bool alike = draw_chance(r, 50), tight = draw_chance(r, 50);
    job_site kind = DRAW_OF(r, kinds);
    /* Minimum memory per GPU for weights, gradients and optimizer state, in
     * GiB. */
    double least = 18e9 * billions / job_gpus(p) / (1 << 30);
    double room = least * draw(r, 12, 50) / 10 + 1;
    for (uint32_t i = 0; i < p->n_sites; i++) {
        if (!alike && i > 0)
            kind = DRAW_OF(r, kinds);
        p->sites[i].tflops = kind.tflops;
        p->sites[i].memory_gbps = kind.memory_gbps;
        p->sites[i].memory_gib = kind.memory_gib;
        if (tight || least * 1.3 > kind.memory_gib)
            p->sites[i].memory_gib =
                round(room * kind.memory_gib / 80 * 10) / 10 + 1;
    }
}

/* Samples optional keys of a job. */
static inline void draw_given(lhi_random *r, job_parts *p)
{
    static const char *const presets[] = {"megatron", "torchtitan",
                                          "deepspeed"};
    static const char *const again[] = {
        "none", "selective", "full", "[core_attn]", "[core_attn, layernorm]",
        "[mlp]"};
    static const char *const zero[] = {"0", "1", "2", "3"};
    static const char *const outermost[] = {"pipeline", "data"};
    static const char *const schedules[] = {"1f1b", "interleaved-1f1b",
                                            "greedy", "gpipe"};
    if (draw_chance(r, 25))
        job_give(p, "framework", "preset", DRAW_OF(r, presets));
    if (draw_chance(r, 30)) {
        const char *list = DRAW_OF(r, again);
        job_give(p, "training", "recompute",
                 p->experts && strcmp(list, "[mlp]") == 0 ? "[moe_act]" : list);
    }
    if (draw_chance(r, 30))
        job_give(p, "training", "zero", DRAW_OF(r, zero));
    if (draw_chance(r, 15))
        job_give(p, "layout", "outermost", DRAW_OF(r, outermost));
    if (draw_chance(r, 15))
        /* Samples a job. */
        job_give(p, "layout", "schedule", DRAW_OF(r, schedules));
}

static inline job_parts draw_job(lhi_random *r, const job_size *size)
{
    job_parts p = {0};
    double billions = draw_model(r, size, &p);
    draw_sites(r, size, &p);
    draw_gpus(r, &p, billions);
    uint32_t doubled = 0;
    while (16u << doubled <= size->batch)
        doubled++;
    p.batch = draw_chance(r, 70) ? 8u << draw(r, 0, doubled)
                                 : 4 * draw(r, 2, size->batch / 4);
    p.sequence = 1024u << draw(r, 0, 3);
    p.latency_ms = draw_wide(r, 0.1, 80);
    p.gbps = draw_wide(r, 10, 800);
    p.fabric_gbps = draw_wide(r, 100, 400);
    draw_given(r, &p);
    return p;
}

/* Writes a section's optional keys. Returns the number of bytes. */
/* --- job file ------------------------------------------------------------- */

static inline size_t job_add_given(const job_parts *p, const char *where,
                                   char *out, size_t room)
{
    size_t len = 0;
    const char *between = "";
    for (uint32_t i = 0; i < p->n_given; i++)
        if (strcmp(p->given[i].where, where) == 0) {
            len += (size_t)snprintf(out + len, room - len, "%s%s: %s", between,
                                    p->given[i].key, p->given[i].value);
            between = ", ";
        }
    return len;
}
/* Writes the job file. */

enum { JOB_TEXT = 6000 };

static inline void job_write(const job_parts *p, char *out)
{
    size_t len = 0, room = JOB_TEXT;
    char keys[3][400] = {"", "", ""};
    job_add_given(p, "training", keys[0], sizeof keys[0]);
    job_add_given(p, "framework", keys[1], sizeof keys[1]);
    job_add_given(p, "layout", keys[2], sizeof keys[2]);
#define JOB_ADD(...) len += (size_t)snprintf(out + len, room - len, __VA_ARGS__)
    JOB_ADD("longhaul: job/1\nmodel: %s\n", p->model);
    JOB_ADD("training: {global_batch: %u, sequence: %u%s%s}\n", p->batch,
            p->sequence, *keys[0] ? ", " : "", keys[0]);
    if (*keys[1])
        JOB_ADD("framework: {%s}\n", keys[1]);
    JOB_ADD("cluster:\n  gpus_per_node: %u\n"
            "  node_link: {gbps: 3600, latency_us: 3}\n"
            "  fabric: {gbps: %g, latency_us: 8}\n  datacenters:\n",
            p->gpus_per_node, p->fabric_gbps);
    for (uint32_t i = 0; i < p->n_sites; i++)
        JOB_ADD("   - {name: s%u, nodes: %u, gpu: {tflops: %g, memory_gib: %g, "
                "memory_gbps: %g}}\n",
                i, p->sites[i].nodes, p->sites[i].tflops,
                p->sites[i].memory_gib, p->sites[i].memory_gbps);
    if (p->n_sites > 1)
        JOB_ADD("  links:\n");
    for (uint32_t i = 0; i < p->n_sites; i++)
        for (uint32_t k = i + 1; k < p->n_sites; k++)
            JOB_ADD("   - {between: [s%u, s%u], latency_ms: %.9g, gbps: "
                    "%.9g}\n",
                    i, k, p->latency_ms * (1 + i) / (1 + (k - i) % 2),
                    p->gbps * (1 + k % 2));
    if (*keys[2])
        JOB_ADD("layout: {%s}\n", keys[2]);
#undef JOB_ADD
    CHECK_MSG(len < room, "the job is too long");
}

/* Parses the job. Returns NULL if the cluster or the batch is not divisible by
 * the given degrees, and if the test fails. */
static inline lh_job *job_make(const job_parts *p)
{
    static char text[JOB_TEXT];
    lh_job *job = NULL;
    lh_error err = {0};
    job_write(p, text);
    lh_status status =
        lh_job_parse(text, strlen(text), "job.yaml", NULL, &job, &err);
    CHECK_MSG(status == LH_OK || strstr(err.text, "layout: ") ||
                  strstr(err.text, "layout."),
              "%s of\n%s", err.text, text);
    return job;
}

/* --- realistic jobs ------------------------------------------------------- */

#define JOB_H100(n)                                                            \
    {                                                                          \
        n, 989.5, 80, 3350                                                     \
    }

static const job_parts real_jobs[] = {
    {2,
     8,
     0,
     {JOB_H100(64), JOB_H100(64)},
     4096,
     4096,
     70,
     400,
     400,
     "deepseek-v3",
     true,
     {{0}}},
    {3,
     8,
     0,
     {JOB_H100(4), JOB_H100(4), {4, 312, 80, 2039}},
     256,
     4096,
     30,
     100,
     400,
     "qwen2.5-32b",
     false,
     {{0}}},
    {2,
     8,
     0,
     {JOB_H100(4), JOB_H100(4)},
     512,
     4096,
     10,
     200,
     400,
     "qwen3-30b-a3b",
     true,
     {{0}}},
    {2,
     8,
     0,
     {JOB_H100(8), JOB_H100(8)},
     256,
     4096,
     30,
     400,
     400,
     "llama3-70b",
     false,
     {{0}}},
    {2,
     8,
     0,
     {JOB_H100(32), {16, 312, 80, 2039}},
     1024,
     4096,
     8,
     800,
     400,
     "deepseek-v3",
     true,
     {{0}}},
};

/* Resources that can be added to a job. */
/* --- additional resources ------------------------------------------------- */

typedef enum job_more {
    MORE_MEMORY,
    MORE_BANDWIDTH,
    LESS_LATENCY,
    MORE_NODES,
    MORE_SITES,
    FASTER_GPUS,
    FASTER_FABRIC,
    /* Returns the resource's name for messages. */
    N_MORE
} job_more;

static inline const char *job_more_name(job_more what)
{
    static const char *const names[] = {
        "more memory",  "more bandwidth", "less latency",   "another node",
        "another site", "faster GPUs",    "a faster fabric"};
    return names[what];
}

/* Adds the resource to the job. Returns false if that does not apply to this
 * job. */
static inline bool job_add_more(lhi_random *r, job_more what, job_parts *p)
{
    double factor = draw_chance(r, 30) ? 1.01 : 1 + 0.1 * draw(r, 1, 20);
    bool links = p->n_sites > 1;
    uint32_t site = draw(r, 0, p->n_sites - 1);
    switch (what) {
    case MORE_MEMORY:
        for (uint32_t i = 0; i < p->n_sites; i++)
            p->sites[i].memory_gib *= factor;
        return true;
    case MORE_BANDWIDTH:
        p->gbps *= factor;
        return links;
    case LESS_LATENCY:
        p->latency_ms /= factor;
        return links;
    case MORE_NODES:
        p->sites[site].nodes += draw(r, 1, 2);
        return true;
    case MORE_SITES:
        p->sites[p->n_sites++] = p->sites[site];
        return true;
    case FASTER_GPUS:
        p->sites[site].tflops *= factor;
        return true;
    default:
        p->fabric_gbps *= factor;
        return true;
    }
}

#endif
