/* SPDX-License-Identifier: Apache-2.0 */
/* Renders timelines and results: a self-contained HTML page, an SVG image, or
 * text for the terminal. See docs/report.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_REPORT_H
#define LONGHAUL_EXPERIMENTAL_REPORT_H

#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/trace.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- data shown with a timeline ----------------------------------------- */

/* Critical-path segment kinds in a report. */
typedef enum lh_report_segment_kind {
    LH_STEP_PASS,       /* index: the trace's runs */
    LH_STEP_QUEUE,      /* index: the trace's messages; waiting for the link */
    LH_STEP_TRANSFER,   /* on the link */
    LH_STEP_LATENCY,    /* in flight */
    LH_STEP_COLLECTIVE, /* index: the trace's collectives */
    LH_STEP_BLOCKED,    /* a device or message waits for a queue entry; index is
                         * unused */
    LH_STEP_WAIT,       /* other waiting; index is unused */
} lh_report_segment_kind;

/* A critical-path segment and the item to which it belongs. */
typedef struct lh_report_segment {
    lh_report_segment_kind step;
    uint32_t index;
    int64_t start_ns, end_ns;
} lh_report_segment;

/* Analysis data shown with a trace. Zero counts: not available. */
typedef struct lh_report_analysis {
    size_t size; /* sizeof(lh_report_analysis) */
    uint32_t n_segments;
    const lh_report_segment *critical_path; /* in time order */
    /* Idle time by cause: bubble_ns[device * n_causes + cause]. */
    uint32_t n_causes;
    const char *const *cause_names; /* e.g. "link latency" */
    const int64_t *bubble_ns;
} lh_report_analysis;

/* Converts the timeline's analysis from which `trace` was made. Release
 * with lh_report_analysis_free(). LH_EINVAL: the analysis belongs to another
 * timeline. */
LH_API lh_status lh_report_analysis_make(const lh_trace *trace,
                                         const lh_analysis *analysis,
                                         lh_report_analysis **out,
                                         lh_error *err);
/* Frees a report's analysis; NULL is a no-op. */
LH_API void lh_report_analysis_free(lh_report_analysis *analysis);

/* A comparison table row. */
typedef struct lh_report_row {
    const char *method;  /* "zb-h1" */
    const char *status;  /* "ok", or for example "infeasible" */
    int64_t makespan_ns; /* -1: none */
    double bubble_ratio; /* 0..1; negative: none */
    int64_t peak_memory; /* maximum over devices; -1: none */
    const char *why;     /* reason for losing or failing; may be NULL */
} lh_report_row;

/* Several methods' makespans over one quantity. */
typedef struct lh_report_sweep {
    size_t size;       /* sizeof(lh_report_sweep) */
    const char *title; /* e.g. "transfer 0.5 ms"; may be NULL */
    const char *x;     /* quantity and unit, e.g. "latency (ms)" */
    uint32_t n_points;
    const double *xs; /* increasing */
    uint32_t n_series;
    const char *const *series;  /* method names */
    const int64_t *makespan_ns; /* [series * n_points + point], -1: none */
    /* makespan with slowdown 1; 0: the smallest one */
    int64_t baseline_ns;
} lh_report_sweep;

/* A breakdown part. */
typedef struct lh_report_breakdown_part {
    const char *name;
    int64_t ns; /* >= 0 */
} lh_report_breakdown_part;

/* A memory kind and its size. */
typedef struct lh_report_memory_kind {
    const char *name;
    int64_t bytes; /* >= 0 */
} lh_report_memory_kind;

/* A text table; rows are added afterwards. */
typedef struct lh_report_table {
    size_t size; /* sizeof(lh_report_table) */
    const char *title;
    uint32_t n_columns;      /* 1..20 */
    const char *const *head; /* column headings; a leading '#' marks a numeric,
                              * right-aligned column */
} lh_report_table;

/* A run's iterations first to first + n_iterations - 1, shown as rates per
 * second, minute or hour. */
typedef struct lh_report_span { /* interval from..to - 1 with a slowdown */
    uint64_t from, to;
    const char *name; /* "2-3" */
} lh_report_span;
typedef struct lh_report_mark { /* switch: iteration `step` is the first with
                                 * another schedule */
    uint64_t step;
    const char *name; /* schedule name */
} lh_report_mark;
/* A run's iteration times, with slow intervals and schedule switches.
 * Nanoseconds. */
typedef struct lh_report_iterations {
    size_t size;       /* sizeof(lh_report_iterations) */
    const char *title; /* may be NULL */
    uint64_t first;
    uint32_t n_iterations;
    uint32_t n_series;         /* 1..6; the first is drawn thickest */
    const char *const *series; /* names: "measured", "1f1b throughout" */
    const int64_t *ns;         /* [series * n_iterations + i]; <= 0: none */
    uint32_t n_spans, n_marks;
    const lh_report_span *spans;
    const lh_report_mark *marks; /* both in time order */
} lh_report_iterations;

/* A sample of iteration times, in any order. */
typedef struct lh_report_distribution {
    size_t size;        /* sizeof(lh_report_distribution) */
    const char *title;  /* "Iterations with jitter" */
    uint32_t n;         /* 1..1000000 */
    const int64_t *ns;  /* each >= 0 */
    int64_t nominal_ns; /* nominal, without variation; 0: unknown */
} lh_report_distribution;

/* One compared property of two items, such as plans. */
typedef struct lh_report_difference {
    const char *group; /* "memory"; rows of a group are consecutive */
    const char *name;  /* "peak" */
    /* values; equal ones are shown on demand only */
    const char *first, *second;
    const char *change; /* "+2.1 %"; "" or NULL: none */
    int better;         /* second item is better: 1, worse: -1, neither:
                         * 0 */
} lh_report_difference;
/* Two items compared side by side. */
typedef struct lh_report_differences {
    size_t size;                /* sizeof(lh_report_differences) */
    const char *first, *second; /* both items' names */
    uint32_t n_rows;            /* at most 1000 */
    const lh_report_difference *rows;
} lh_report_differences;

/* A datacenter on a plan's map. */
typedef struct lh_report_site {
    const char *name;  /* "west" */
    const char *gpus;  /* "128 of 128 h100-sxm" */
    const char *holds; /* "stages 0-1 of 16 replicas: 40 layers" */
    double used;       /* share of its GPUs in use, 0..1 */
} lh_report_site;
/* One direction of a link on a plan's map. */
typedef struct lh_report_site_link {
    uint32_t from, to;   /* site indices */
    const char *values;  /* "20 ms, 3200 Gb/s" */
    const char *carries; /* "2048 messages of 58.7 MB" */
    double use; /* traffic over what the link carries in an iteration; < 0:
                 * unknown */
} lh_report_site_link;
/* A plan on the chart of time against cost or memory. */
typedef struct lh_report_tradeoff {
    const char *name; /* layout and schedule */
    const char *mark; /* "this plan", "knee"; NULL or "": none */
    int64_t iteration_ns, peak_bytes; /* >= 0 */
    double usd; /* per iteration; < 0: unknown. The chart is over the cost if
                 * all are known, else over the memory. */
} lh_report_tradeoff;
/* A plan as a decision, at the page's top. */
typedef struct lh_report_decision {
    size_t size;          /* sizeof(lh_report_decision) */
    uint32_t n_sentences; /* the recommendation */
    const char *const *sentences;
    uint32_t n_sites; /* at most 1000, as all counts */
    const lh_report_site *sites;
    uint32_t n_links;
    const lh_report_site_link *links;
    uint32_t n_notes; /* what would change the decision: 2 texts each,
                       * a heading and a sentence */
    const char *const *notes;
    uint32_t n_tradeoffs; /* fastest first; 0: no chart */
    const lh_report_tradeoff *tradeoffs;
} lh_report_decision;

/* A diagnosis and its recording. */
typedef struct lh_report_diagnosis {
    size_t size; /* sizeof(lh_report_diagnosis) */
    const lh_recording *recording;
    const lh_diagnosis *diagnosis;
    uint32_t n_sentences;
    const char *const *sentences; /* introductory sentences; may be NULL if
                                   * n_sentences is 0 */
} lh_report_diagnosis;

/* --- the HTML report ----------------------------------------------------- */

typedef struct lh_report lh_report;

/* Creates an empty report. Everything added later is copied. Release with
 * lh_report_free(). */
LH_API lh_status lh_report_make(const char *title, lh_report **out,
                                lh_error *err);
LH_API void lh_report_free(lh_report *report); /* frees; NULL is a no-op */

/* Adds a line to the report's heading, such as "job" and
 * "llama3-70b-two-sites.yaml". */
LH_API lh_status lh_report_add_fact(lh_report *report, const char *name,
                                    const char *value, lh_error *err);
/* Adds a key figure in large type to the report: "Throughput", "289,423
 * tokens/s", and the text below it. */
LH_API lh_status lh_report_add_card(lh_report *report, const char *name,
                                    const char *value, const char *more,
                                    lh_error *err);
/* Adds a device's peak memory by kind to the report; all devices need the same
 * kinds. `limit_bytes` 0: no limit. */
LH_API lh_status lh_report_add_memory(lh_report *report, const char *device,
                                      int64_t limit_bytes, uint32_t n_kinds,
                                      const lh_report_memory_kind *kinds,
                                      lh_error *err);
/* Adds a timeline to the report. All timelines share one time axis, one below
 * the other, for example to compare a measured run with its prediction.
 * `label`: its name, such as "zb-h1" or "measured"; `analysis` may be NULL.
 * LH_EINVAL: the analysis refers to items that the trace lacks. */
LH_API lh_status lh_report_add_trace(lh_report *report, const lh_trace *trace,
                                     const char *label,
                                     const lh_report_analysis *analysis,
                                     lh_error *err);
/* Adds a row to the report's table that compares scheduling methods: name,
 * makespan and other results of one method. */
LH_API lh_status lh_report_add_row(lh_report *report, const lh_report_row *row,
                                   lh_error *err);
/* Adds a sweep chart (makespans against a delay) to the report. */
LH_API lh_status lh_report_add_sweep(lh_report *report,
                                     const lh_report_sweep *sweep,
                                     lh_error *err);

/* Adds an iteration time histogram with mean, 95th and 99th percentile to the
 * report. LH_EINVAL: no values, too many, or a negative one. */
LH_API lh_status lh_report_add_distribution(
    lh_report *report, const lh_report_distribution *varied, lh_error *err);

/* Adds a side-by-side table of two plans above the timelines. LH_EINVAL: too
 * many rows, or a text is not UTF-8. */
LH_API lh_status lh_report_add_differences(
    lh_report *report, const lh_report_differences *differences, lh_error *err);

/* Adds a total's breakdown into n_parts parts to the report as one bar. */
LH_API lh_status lh_report_add_breakdown(lh_report *report, const char *title,
                                         uint32_t n_parts,
                                         const lh_report_breakdown_part *parts,
                                         lh_error *err);
/* Adds a table without rows to the report; lh_report_add_cells() adds them. */
LH_API lh_status lh_report_add_table(lh_report *report,
                                     const lh_report_table *table,
                                     lh_error *err);
/* Adds a row to the report's last table. LH_EINVAL: no table, or another
 * number of columns. */
LH_API lh_status lh_report_add_cells(lh_report *report, uint32_t n_cells,
                                     const char *const *cells, lh_error *err);

/* Sets the recommendation at the page's top, with a map of the sites and
 * a chart of the Pareto front; the other parts of the page are then folded. A
 * second decision replaces the first. LH_EINVAL: a text is missing or not
 * UTF-8, or a number is out of range. */
LH_API lh_status lh_report_set_decision(lh_report *report,
                                        const lh_report_decision *decision,
                                        lh_error *err);

/* Adds the iteration time chart above the timelines. LH_EINVAL: counts or times
 * are out of range. */
LH_API lh_status lh_report_add_iterations(
    lh_report *report, const lh_report_iterations *iterations, lh_error *err);

/* Adds a diagnosis to the report page: maps with slow stages and replicas,
 * steps with measured and typical times, and remedies. Its timelines replace
 * traces. For large recordings the page shows a subset of steps and replicas,
 * with a note. A second diagnosis replaces the first. Everything is copied.
 *
 * LH_EINVAL: the recording or the diagnosis is NULL, or a sentence is not
 * UTF-8. */
LH_API lh_status lh_report_add_diagnosis(lh_report *report,
                                         const lh_report_diagnosis *diagnosis,
                                         lh_error *err);

/* Input for the page's interactive what-if simulation, in which the reader
 * changes links, devices or the schedule. */
typedef struct lh_report_what_if {
    size_t size; /* sizeof(lh_report_what_if) */
    const lh_pipeline *pipeline;
    const lh_schedule *schedule; /* schedule of the report's first trace */
    const char *method;          /* its method name */
    const lh_sim_options *sim;   /* NULL: the defaults */
    /* For a plan, whose cards "Iteration", "Throughput" or "Tokens per second",
     * and "Model FLOPs utilisation" are updated by the simulation: */
    int64_t after_ns; /* time after the pipeline, per iteration */
    double tokens;    /* per iteration; 0: cards are not updated */
    double mfu;       /* 0..1, for the unchanged iteration */
} lh_report_what_if;

/* Sets the pipeline and schedule that the report page's what-if controls start
 * from, copying them. In a build without WebAssembly tools the page explains
 * how to get them instead. LH_EINVAL: a plan value is negative or too large.
 * LH_EUNSUPPORTED: the page cannot simulate delegated messages (sent by a
 * helper thread through host memory) or host memory. */
LH_API lh_status lh_report_set_what_if(lh_report *report,
                                       const lh_report_what_if *what_if,
                                       lh_error *err);

/* Formats the report as one self-contained HTML file. Release *text with
 * lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_report_format_html(const lh_report *report, char **text,
                                       size_t *len, lh_error *err);

/* --- images without a browser ------------------------------------------- */

/* Options for the SVG renderers. */
typedef struct lh_svg_options {
    size_t size;                        /* sizeof(lh_svg_options) */
    uint32_t width;                     /* in pixels; 0: 1200 */
    const lh_report_analysis *analysis; /* outlines the critical path; may be
                                         * NULL */
} lh_svg_options;

/* Renders a trace's timeline as SVG. Items narrower than half a pixel are
 * merged with their neighbours. `options` may be NULL. Release *text with
 * lh_text_free(). */
LH_API lh_status lh_report_svg(const lh_trace *trace,
                               const lh_svg_options *options, char **text,
                               size_t *len, lh_error *err);

/* Renders a run's iteration times as SVG; `options` without an analysis.
 * Release *text with lh_text_free(). */
LH_API lh_status lh_report_iterations_svg(
    const lh_report_iterations *iterations, const lh_svg_options *options,
    char **text, size_t *len, lh_error *err);

/* Options for the terminal renderers. */
typedef struct lh_terminal_options {
    size_t size;    /* sizeof(lh_terminal_options) */
    uint32_t width; /* in columns, 40..1000; 0: 80 */
    bool color;     /* ANSI colours */
    bool ascii;     /* ASCII only */
} lh_terminal_options;

/* Renders a trace's timeline as text, one row per device, within the width.
 * `options` may be NULL. Release *text with lh_text_free(). */
LH_API lh_status lh_report_terminal(const lh_trace *trace,
                                    const lh_terminal_options *options,
                                    char **text, size_t *len, lh_error *err);
/* Renders a sweep's curves (makespans against a delay) as text. Release
 * *text with lh_text_free(). */
LH_API lh_status lh_report_terminal_plot(const lh_report_sweep *sweep,
                                         const lh_terminal_options *options,
                                         char **text, size_t *len,
                                         lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
