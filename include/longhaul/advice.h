/* SPDX-License-Identifier: Apache-2.0 */
/* What the ends of the links between datacenters should be set to for a plan,
 * and why: docs/theory/network-advice.md. */
#ifndef LONGHAUL_ADVICE_H
#define LONGHAUL_ADVICE_H

#include <longhaul/status.h>
#include <longhaul/transport.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lh_advice_topic {
    LH_ADVICE_BALANCING,   /* ECMP or spraying */
    LH_ADVICE_QUEUE_PAIRS, /* how many between two GPUs */
    LH_ADVICE_CONGESTION,  /* control on or off */
    LH_ADVICE_RECOVERY,    /* go-back-N or selective repeat */
    LH_ADVICE_FEC,         /* a block code, or none */
    LH_N_ADVICE_TOPICS
} lh_advice_topic;

LH_API const char *lh_advice_topic_name(lh_advice_topic topic);

/* One setting of a link, and what comes of it. Rates are of one GPU that sends,
 * of the bytes that it means to send. */
typedef struct lh_advice_option {
    lh_link_setting setting;    /* complete, as a job may have it */
    double message_bytes_per_s; /* pipeline messages; 0: there are none */
    int64_t message_ns;         /* one of them, latency included; -1: none */
    double data_bytes_per_s;    /* data-parallel rings; 0: there are none */
    int64_t iteration_ns; /* the plan's schedule with this on this link and
                             all else as it is; -1: not simulated */
    bool advised;
} lh_advice_option;

/* What it answers to the question: "spray, 4 queue pairs", "go-back-n". */
LH_API void lh_advice_option_text(const lh_advice_option *option,
                                  lh_advice_topic topic, char *text,
                                  size_t room);

/* What simulations of packets that were published found that the wrong answer
 * costs, as a share of an iteration; and where. */
typedef struct lh_advice_published {
    double low, high;
    const char *where;
} lh_advice_published;

/* Rates come in closed form; what they are worth is said beside them. Shares
 * are of an iteration's time. */
typedef struct lh_advice_question {
    lh_advice_topic topic;
    bool matters;    /* another answer than what holds now is advised: with it
                        an iteration takes at least 1 % less */
    const char *why; /* the numbers, in words */
    uint32_t n_options;
    const lh_advice_option *options; /* all else as advised */
    double gain; /* what holds now takes so much longer than the advised answer,
                    or, if that is the same, than the fastest */
    double differs; /* the most between an option and the advised one */
    const lh_advice_published *published; /* NULL: none of such a link is */
    const char *sure; /* how far to trust it, in words; NULL: a file without */
} lh_advice_question;

/* One direction between two datacenters that the plan uses; where they have
 * zones, what all of these send each other. */
typedef struct lh_link_advice {
    const char *from, *to; /* names of datacenters */
    /* Per iteration: messages of the pipeline, of so many bytes from all GPUs
     * of a pipeline rank together, from so many GPUs at once; and what
     * data-parallel rings send, so many at once, in steps of so many bytes. */
    int64_t message_bytes, data_bytes, data_step_bytes;
    uint64_t messages, message_flows, data_flows;
    uint32_t paths;   /* that ECMP chooses from */
    bool paths_given; /* by the job; else one for each 400 Gb/s */
    bool measured;    /* by the job's profile, which no setting changes: then
                         there are no questions, nor where there are
                         expert_bytes alone */
    /* `advised` is what holds now, with the answers of questions that matter:
     * the job's, and where it says nothing ECMP with one queue pair, go-back-n,
     * no congestion control and no code. */
    lh_advice_option planned, advised;
    uint32_t n_questions;
    const lh_advice_question *questions;
    int64_t expert_bytes; /* per iteration: tokens on their way to experts in
                             the other datacenter and back; part of passes */
} lh_link_advice;

#ifdef __cplusplus
}
#endif
#endif
