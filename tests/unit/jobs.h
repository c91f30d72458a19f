/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for tests: a few shared base jobs plus changes, so that a test states
 * only its differences:
 *
 *     lh_job *job = job_with(JOB_TWO_SITES,
 *                            "  gpus_per_node: %u\n"
 *                            "layout: {tensor: 2}\n", 8);
 *
 * Changes are lines in the job's syntax, the cluster's first with their usual
 * indentation. A change replaces the job's line with the same key or is added;
 * a key without a value removes the line. Lines with deeper indentation belong
 * to the key above them. */
#ifndef TEST_JOBS_H
#define TEST_JOBS_H

#include "test.h"

#include <longhaul/experimental/job.h>
#include <stdarg.h>

/* Llama 3 8B on 2 x 8 GPUs in two datacenters. */
#define JOB_TWO_SITES                                                          \
    "longhaul: job/1\n"                                                        \
    "model: llama3-8b\n"                                                       \
    "training: {global_batch: 32, sequence: 4096}\n"                           \
    "cluster:\n"                                                               \
    "  gpu: {tflops: 500, memory_gib: 80, memory_gbps: 3000, "                 \
    "efficiency: 0.5}\n"                                                       \
    "  gpus_per_node: 4\n"                                                     \
    "  node_link: {gbps: 3600, latency_us: 3}\n"                               \
    "  fabric: {gbps: 400, latency_us: 8}\n"                                   \
    "  datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2}]\n"        \
    "  links: [{between: [west, east], latency_ms: 20, gbps: 400}]\n"

/* The same model on as many A100s, with slower links between them. */
#define JOB_A100S                                                              \
    "longhaul: job/1\n"                                                        \
    "model: llama3-8b\n"                                                       \
    "training: {global_batch: 32, sequence: 4096, zero: 1}\n"                  \
    "cluster:\n"                                                               \
    "  gpu: a100-80g\n"                                                        \
    "  gpus_per_node: 4\n"                                                     \
    "  node_link: {gbps: 2400, latency_us: 3}\n"                               \
    "  fabric: {gbps: 100, latency_us: 8}\n"                                   \
    "  datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2}]\n"        \
    "  links: [{between: [west, east], latency_ms: 20, gbps: 100}]\n"

/* Llama 3 70B on 2 x 128 H100s. */
#define JOB_70B                                                                \
    "longhaul: job/1\n"                                                        \
    "model: llama3-70b\n"                                                      \
    "training: {global_batch: 512, sequence: 8192}\n"                          \
    "cluster:\n"                                                               \
    "  gpu: h100-sxm\n"                                                        \
    "  gpus_per_node: 8\n"                                                     \
    "  node_link: {gbps: 3600, latency_us: 3}\n"                               \
    "  fabric: {gbps: 400, latency_us: 8}\n"                                   \
    "  datacenters: [{name: west, nodes: 16}, {name: east, nodes: 16}]\n"      \
    "  links: [{between: [west, east], latency_ms: 20, gbps: 800}]\n"

/* A model with a few layers on one or a few GPUs in each of two datacenters;
 * plans almost instantly. */
#define JOB_SMALL                                                              \
    "longhaul: job/1\n"                                                        \
    "model: {layers: 4, hidden: 1024, ffn: 4096, heads: 8, vocab: 1000}\n"     \
    "training: {global_batch: 8, sequence: 1024}\n"                            \
    "cluster:\n"                                                               \
    "  gpu: h100-sxm\n"                                                        \
    "  gpus_per_node: 1\n"                                                     \
    "  node_link: {gbps: 3600, latency_us: 3}\n"                               \
    "  fabric: {gbps: 400, latency_us: 8}\n"                                   \
    "  datacenters: [{name: west, nodes: 1}, {name: east, nodes: 1}]\n"        \
    "  links: [{between: [west, east], latency_ms: 1, gbps: 100}]\n"

/* Four datacenters with 8 GPUs each in two nearby pairs: a and b, c and d. */
#define JOB_PAIRS                                                              \
    "  datacenters: [{name: a, nodes: 2}, {name: b, nodes: 2},\n"              \
    "                {name: c, nodes: 2}, {name: d, nodes: 2}]\n"              \
    "  links:\n"                                                               \
    "   - {between: [a, b], latency_ms: 1, gbps: 400}\n"                       \
    "   - {between: [c, d], latency_ms: 1, gbps: 200}\n"                       \
    "   - {between: [a, c], latency_ms: 30, gbps: 100}\n"                      \
    "   - {between: [a, d], latency_ms: 30, gbps: 100}\n"                      \
    "   - {between: [b, c], latency_ms: 30, gbps: 100}\n"                      \
    "   - {between: [b, d], latency_ms: 40, gbps: 50}\n"

/* A key of a job with all lines that belong to it. */
typedef struct job_entry {
    const char *text;
    size_t len, key; /* key: length including its colon */
    bool of_cluster;
} job_entry;

/* Advances to the next entry; returns false at the end. Start with *e = {0} to
 * iterate over a job, with {.of_cluster = true} to iterate over changes. */
static inline bool job_entry_next(const char *text, job_entry *e)
{
    const bool was_cluster =
        e->text ? e->of_cluster || strncmp(e->text, "cluster:", 8) == 0
                : e->of_cluster;
    e->text = e->text ? e->text + e->len : text;
    if (!*e->text)
        return false;
    e->of_cluster = was_cluster && strncmp(e->text, "  ", 2) == 0;
    e->key = strcspn(e->text, ":\n") + 1;
    e->len = 0;
    bool inside = e->of_cluster || strncmp(e->text, "cluster:", 8) == 0;
    do
        e->len += strcspn(e->text + e->len, "\n") +
                  (strchr(e->text + e->len, '\n') != NULL);
    while (strncmp(e->text + e->len, inside ? "   " : " ", inside ? 3 : 1) ==
           0);
    return true;
}

/* Finds the entry with the same key as `like`, starting at `first`. */
static inline bool job_entry_find(const char *text, job_entry first,
                                  const job_entry *like, job_entry *found)
{
    for (*found = first; job_entry_next(text, found);)
        if (found->key == like->key &&
            strncmp(found->text, like->text, like->key) == 0)
            return true;
    return false;
}

/* Appends an entry to a text buffer. */
static inline void job_add(char *out, size_t room, const job_entry *e)
{
    const size_t used = strlen(out);
    const bool empty = e->key + strspn(e->text + e->key, " \n") >= e->len;
    if (empty && strncmp(e->text, "cluster:", 8) != 0)
        return;
    CHECK_MSG(used + e->len < room, "the job is too long");
    if (used + e->len < room)
        snprintf(out + used, room - used, "%.*s", (int)e->len, e->text);
}

/* Appends the changes whose keys are not in the job. */
static inline void job_add_new(char *out, size_t room, const char *job,
                               const char *changes, bool of_cluster)
{
    job_entry e = {.of_cluster = true}, old;
    while (job_entry_next(changes, &e))
        if (e.of_cluster == of_cluster &&
            !job_entry_find(job, (job_entry){0}, &e, &old))
            job_add(out, room, &e);
}

/* Writes the job's text with the changes applied. */
static inline void job_text_v(char *out, size_t room, const char *job,
                              const char *format, va_list list)
{
    static char changes[32768];
    job_entry e = {0}, other;
    int n = vsnprintf(changes, sizeof changes, format, list);
    CHECK_MSG(n >= 0 && (size_t)n < sizeof changes, "too many changes");
    *out = '\0';
    while (job_entry_next(job, &e)) {
        bool changed = job_entry_find(changes, (job_entry){.of_cluster = true},
                                      &e, &other);
        job_add(out, room, changed ? &other : &e);
        if (strncmp(e.text, "cluster:", 8) == 0)
            job_add_new(out, room, job, changes, true);
    }
    job_add_new(out, room, job, changes, false);
}

__attribute__((format(printf, 4, 5))) static inline void
job_text(char *out, size_t room, const char *job, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    job_text_v(out, room, job, format, list);
    va_end(list);
}

/* Returns the parsed job; NULL fails the test. The caller frees it. */
__attribute__((format(printf, 2, 3))) static inline lh_job *
job_with(const char *job, const char *format, ...)
{
    static char text[32768];
    lh_job *made = NULL;
    lh_error err = {0};
    va_list list;
    va_start(list, format);
    job_text_v(text, sizeof text, job, format, list);
    va_end(list);
    CHECK_MSG(lh_job_parse(text, strlen(text), "job.yaml", NULL, &made, &err) ==
                  LH_OK,
              "%s of\n%s", err.text, text);
    return made;
}

/* Returns JOB_TWO_SITES with this layout ("": no layout line), batch and
 * memory, all usable. */
static inline lh_job *job_two_sites(const char *layout, unsigned batch,
                                    double memory_gib)
{
    return job_with(JOB_TWO_SITES,
                    "  gpu: {tflops: 500, memory_gib: %g, memory_reserve: 0, "
                    "memory_gbps: 3000, efficiency: 0.5}\n"
                    "training: {global_batch: %u, sequence: 4096}\n"
                    "layout: %s\n",
                    memory_gib, batch, layout);
}

/* Returns JOB_TWO_SITES with another batch and cluster: `sites` has datacenters
 * and links, `rest` (or NULL) the lines that follow, e.g. the layout. */
static inline lh_job *job_at(unsigned batch, const char *sites,
                             const char *rest)
{
    return job_with(JOB_TWO_SITES,
                    "%straining: {global_batch: %u, sequence: 4096}\n%s", sites,
                    batch, rest ? rest : "");
}

#endif
