/* SPDX-License-Identifier: Apache-2.0 */
/* Recommends network settings at inter-datacenter links' endpoints for a
 * plan, with reasons: docs/theory/network-advice.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_ADVICE_H
#define LONGHAUL_EXPERIMENTAL_ADVICE_H

#include <longhaul/experimental/network_model.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Recommendation topics, one per link setting. */
typedef enum lh_advice_topic {
    LH_ADVICE_BALANCING,   /* ECMP or packet spraying */
    LH_ADVICE_QUEUE_PAIRS, /* queue pairs between two GPUs */
    LH_ADVICE_CONGESTION,  /* congestion control on or off */
    LH_ADVICE_RECOVERY,    /* go-back-N or selective repeat */
    LH_ADVICE_FEC,         /* forward error correction: a block code, or none */
    LH_N_ADVICE_TOPICS
} lh_advice_topic;

/* Returns a link advice topic's name: balancing, queue pairs, congestion,
 * recovery or error correction. Static storage. */
LH_API const char *lh_advice_topic_name(lh_advice_topic topic);

/* One link setting with its predicted effect. Rates are goodput per sending
 * GPU. */
typedef struct lh_advice_option {
    lh_link_setting setting;    /* complete; can be used in a job as is */
    double message_bytes_per_s; /* pipeline messages; 0: none */
    int64_t message_ns;         /* one message with latency; -1: none */
    double data_bytes_per_s;    /* data-parallel rings; 0: none */
    int64_t iteration_ns; /* the plan's iteration with this setting on this
                           * link, all else unchanged; -1: not simulated */
    bool advised;
} lh_advice_option;

/* Writes the value for an advised or alternative link setting for a topic into
 * `text` (at most `room` bytes): "spray, 4 queue pairs", "go-back-n". */
LH_API void lh_advice_option_text(const lh_advice_option *option,
                                  lh_advice_topic topic, char *text,
                                  size_t room);

/* Published packet-level results for the cost of the wrong choice, as a
 * fraction of an iteration, and their source. */
typedef struct lh_advice_published {
    double low, high;
    const char *where;
} lh_advice_published;

/* One topic for one link, with all options and the recommended one. Rates are
 * closed forms; `confidence` gives their reliability. Fractions refer to the
 * iteration time. */
typedef struct lh_advice_question {
    lh_advice_topic topic;
    /* true if another value than the current one is recommended: it shortens
     * the iteration by at least 1 % */
    bool change_advised;
    const char *why; /* explanation with the numbers */
    uint32_t n_options;
    const lh_advice_option *options; /* other topics as recommended */
    double gain;   /* extra time with the current value against the recommended
                    * one, or, if equal, against the fastest */
    double spread; /* largest difference from the recommended option */
    const lh_advice_published *published; /* NULL: no result for such a link */
    const char
        *confidence; /* confidence in words; NULL: absent from the file */
} lh_advice_question;

/* Recommendations for one direction between two datacenters that the plan uses.
 * Datacenters with zones are aggregated. */
typedef struct lh_link_advice {
    const char *from, *to; /* datacenter names */
    /* Traffic per iteration. Pipeline: `messages` messages, each with
     * `message_bytes` summed over all GPUs of a pipeline rank, from
     * `message_flows` GPUs at once. Data-parallel rings: `data_bytes` in total,
     * in `data_flows` concurrent flows with steps of `data_step_bytes`. */
    int64_t message_bytes, data_bytes, data_step_bytes;
    uint64_t messages, message_flows, data_flows;
    uint32_t paths;      /* paths available to ECMP */
    bool paths_from_job; /* true: from the job; false: one per 400 Gb/s */
    /* rates come from the job's profile, which no setting changes. Then there
     * are no questions, and neither if the link carries expert_bytes alone */
    bool measured;
    /* `advised` is the current setting with the recommended values of all
     * topics that matter. The current setting is the job's; its defaults are
     * ECMP with one queue pair, go-back-n, no congestion control and no code.
     */
    lh_advice_option planned, advised;
    uint32_t n_questions;
    const lh_advice_question *questions;
    int64_t expert_bytes; /* per iteration: tokens sent to experts in the other
                           * datacenter and back, within passes */
} lh_link_advice;

/* A link whose ends limit a sender to less than the link allows. */
typedef struct lh_ends_limit {
    const char *from, *to;   /* as in the plan's network */
    double link_bytes_per_s; /* per sender, without the ends' windows */
    double ends_bytes_per_s; /* per sender, with them */
    double round_trip_ns;
    lh_link_setting ends; /* the job's; else NCCL's defaults */
    bool planned;         /* the plan counts the limit; false: it assumes
                           * ends without one */
} lh_ends_limit;

#ifdef __cplusplus
}
#endif
#endif
