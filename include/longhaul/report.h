/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of what happened when: one HTML file that works offline, an SVG, a
 * timeline in the terminal. See docs/report.md. */
#ifndef LONGHAUL_REPORT_H
#define LONGHAUL_REPORT_H

#include <longhaul/analysis.h>
#include <longhaul/diagnose.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>
#include <longhaul/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- what a report shows beside a timeline ------------------------------ */

/* What the critical path passes through. */
typedef enum lh_report_step {
    LH_STEP_PASS,       /* index: into the trace's runs */
    LH_STEP_QUEUE,      /* index: into its messages; waiting for the link */
    LH_STEP_TRANSFER,   /* on the link */
    LH_STEP_LATENCY,    /* on its way */
    LH_STEP_COLLECTIVE, /* index: into its collectives */
    LH_STEP_BLOCKED, /* a device or message waits for a place in a queue; index
                        is not used */
    LH_STEP_WAIT,    /* anything else; index is not used */
} lh_report_step;

typedef struct lh_report_segment {
    lh_report_step step;
    uint32_t index;
    int64_t start_ns, end_ns;
} lh_report_segment;

/* What is known about a trace beyond itself. Zero counts: not known. */
typedef struct lh_report_analysis {
    size_t size; /* sizeof(lh_report_analysis) */
    uint32_t n_segments;
    const lh_report_segment *critical_path; /* in order of time */
    /* Idle time by cause: bubble_ns[device * n_causes + cause]. */
    uint32_t n_causes;
    const char *const *cause_names; /* e.g. "link latency" */
    const int64_t *bubble_ns;
} lh_report_analysis;

/* The same from an analysis of the timeline that `trace` was made of, lasting
 * until lh_report_analysis_free().
 * LH_EINVAL: the analysis is of another timeline. */
LH_API lh_status lh_report_analysis_make(const lh_trace *trace,
                                         const lh_analysis *analysis,
                                         lh_report_analysis **out,
                                         lh_error *err);
LH_API void lh_report_analysis_free(lh_report_analysis *analysis);

/* A row of the comparison table. */
typedef struct lh_report_row {
    const char *method;  /* "zb-h1" */
    const char *status;  /* "ok", else a word such as "infeasible" */
    int64_t makespan_ns; /* -1: none */
    double bubble_ratio; /* 0..1; negative: none */
    int64_t peak_memory; /* highest over the devices; -1: none */
    const char *why;     /* why it lost or failed; may be NULL */
} lh_report_row;

/* Makespans of several methods over one changing quantity. */
typedef struct lh_report_sweep {
    size_t size;       /* sizeof(lh_report_sweep) */
    const char *title; /* e.g. "transfer 0.5 ms"; may be NULL */
    const char *x;     /* what changes and its unit, e.g. "latency (ms)" */
    uint32_t n_points;
    const double *xs; /* rising */
    uint32_t n_series;
    const char *const *series;  /* names of the methods */
    const int64_t *makespan_ns; /* [series * n_points + point], -1: none */
    int64_t baseline_ns;        /* slowdown 1; 0: the least makespan there is */
} lh_report_sweep;

/* A part of a whole. */
typedef struct lh_report_part {
    const char *name;
    int64_t ns; /* 0 or more */
} lh_report_part;

/* What takes memory. */
typedef struct lh_report_kind {
    const char *name;
    int64_t bytes; /* 0 or more */
} lh_report_kind;

/* A table of text, which rows follow. */
typedef struct lh_report_table {
    size_t size; /* sizeof(lh_report_table) */
    const char *title;
    uint32_t n_columns;      /* 1..20 */
    const char *const *head; /* of each column; one that begins with '#' is
                                of numbers, and stands to the right */
} lh_report_table;

/* Iterations first to first + n_iterations - 1 of a run, as how many are done
 * in a second, a minute or an hour. */
typedef struct lh_report_span { /* something was slow in from..to - 1 */
    uint64_t from, to;
    const char *name; /* "2-3" */
} lh_report_span;
typedef struct lh_report_mark { /* iteration `at` was the first by another */
    uint64_t at;
    const char *name; /* of the schedule */
} lh_report_mark;
typedef struct lh_report_course {
    size_t size;       /* sizeof(lh_report_course) */
    const char *title; /* may be NULL */
    uint64_t first;
    uint32_t n_iterations;
    uint32_t n_series;         /* 1..6; the first is drawn the thickest */
    const char *const *series; /* names: "measured", "1f1b throughout" */
    const int64_t *ns; /* [series * n_iterations + i]; 0 or less: none */
    uint32_t n_spans, n_marks;
    const lh_report_span *spans;
    const lh_report_mark *marks; /* both in order of time */
} lh_report_course;

/* How long iterations take that differ, in any order. */
typedef struct lh_report_varied {
    size_t size;       /* sizeof(lh_report_varied) */
    const char *title; /* "Iterations with jitter" */
    uint32_t n;        /* 1..1000000 */
    const int64_t *ns; /* each 0 or more */
    int64_t usual_ns;  /* where nothing differs; 0: not known */
} lh_report_varied;

/* What two have of something, such as plans. */
typedef struct lh_report_difference {
    const char *group;          /* "memory"; rows of one follow each other */
    const char *name;           /* "peak" */
    const char *first, *second; /* alike: shown on demand alone */
    const char *change;         /* "+2.1 %"; "" or NULL: none */
    int better;                 /* the second is: 1, -1: worse, 0: neither */
} lh_report_difference;
typedef struct lh_report_differences {
    size_t size;                /* sizeof(lh_report_differences) */
    const char *first, *second; /* what both are called */
    uint32_t n_rows;            /* at most 1000 */
    const lh_report_difference *rows;
} lh_report_differences;

/* A diagnosis, of the recording. */
typedef struct lh_report_diagnosis {
    size_t size; /* sizeof(lh_report_diagnosis) */
    const lh_recording *recording;
    const lh_diagnosis *diagnosis;
    uint32_t n_sentences;
    const char *const *sentences; /* what is told of it first; may be NULL where
                                     there is none */
} lh_report_diagnosis;

/* --- the HTML report ----------------------------------------------------- */

typedef struct lh_report lh_report;

/* An empty report; everything added is copied. Release with
 * lh_report_free(). */
LH_API lh_status lh_report_make(const char *title, lh_report **out,
                                lh_error *err);
LH_API void lh_report_free(lh_report *report); /* NULL is fine */

/* A line of the heading, such as "job" and "llama3-70b-two-sites.yaml". */
LH_API lh_status lh_report_add_fact(lh_report *report, const char *name,
                                    const char *value, lh_error *err);
/* A number that readers look for first, large: "Throughput", "289,423
 * tokens/s", and what is said below it. */
LH_API lh_status lh_report_add_card(lh_report *report, const char *name,
                                    const char *value, const char *more,
                                    lh_error *err);
/* What takes a device's memory when it takes most; each device has the same
 * kinds. `limit_bytes` 0: it has none. */
LH_API lh_status lh_report_add_memory(lh_report *report, const char *device,
                                      int64_t limit_bytes, uint32_t n_kinds,
                                      const lh_report_kind *kinds,
                                      lh_error *err);
/* A timeline. Several are shown one under the other on one axis of time, so
 * that a measured run can be held against the predicted one. `label` is what
 * it is called, e.g. "zb-h1" or "measured"; `analysis` may be NULL.
 * LH_EINVAL: the analysis names what the trace does not have. */
LH_API lh_status lh_report_add_trace(lh_report *report, const lh_trace *trace,
                                     const char *label,
                                     const lh_report_analysis *analysis,
                                     lh_error *err);
LH_API lh_status lh_report_add_row(lh_report *report, const lh_report_row *row,
                                   lh_error *err);
LH_API lh_status lh_report_add_sweep(lh_report *report,
                                     const lh_report_sweep *sweep,
                                     lh_error *err);

/* As a histogram, with the mean and what 95 % and 99 % of them keep.
 * LH_EINVAL: there are none, too many, or one is negative. */
LH_API lh_status lh_report_add_varied(lh_report *report,
                                      const lh_report_varied *varied,
                                      lh_error *err);

/* Beside each other, as a table above the timelines. LH_EINVAL: too many rows,
 * or a text is not UTF-8. */
LH_API lh_status lh_report_add_differences(
    lh_report *report, const lh_report_differences *differences, lh_error *err);

/* Parts that make up a whole, as one bar. */
LH_API lh_status lh_report_add_parts(lh_report *report, const char *title,
                                     uint32_t n_parts,
                                     const lh_report_part *parts,
                                     lh_error *err);
LH_API lh_status lh_report_add_table(lh_report *report,
                                     const lh_report_table *table,
                                     lh_error *err);
/* A row of the table that was added last.
 * LH_EINVAL: there is none, or it has another number of columns. */
LH_API lh_status lh_report_add_cells(lh_report *report, uint32_t n_cells,
                                     const char *const *cells, lh_error *err);

/* Above the timelines. LH_EINVAL: counts or times are out of range. */
LH_API lh_status lh_report_add_course(lh_report *report,
                                      const lh_report_course *course,
                                      lh_error *err);

/* A diagnosis: who was slow as maps of stages and replicas, steps with measured
 * and with usual times, what would help. Its timelines take the place of
 * traces; of a large recording the page shows some of the steps and replicas,
 * and says so. A second takes the place of the first. Nothing stays borrowed.
 * LH_EINVAL: the recording or the diagnosis is NULL, or a sentence is not
 * UTF-8. */
LH_API lh_status lh_report_add_diagnosis(lh_report *report,
                                         const lh_report_diagnosis *diagnosis,
                                         lh_error *err);

/* What the page is to simulate again when somebody changes links, devices or
 * the schedule there. */
typedef struct lh_report_what_if {
    size_t size; /* sizeof(lh_report_what_if) */
    const lh_pipeline *pipeline;
    const lh_schedule *schedule; /* of the report's first trace */
    const char *method;          /* what that is called there */
    const lh_sim_options *sim;   /* NULL: the defaults */
    /* Of a plan, whose cards "Iteration", "Throughput" or "Tokens per second",
     * and "Model FLOPs utilisation" then follow the changes: */
    int64_t after_ns; /* that an iteration takes after the pipeline */
    double tokens;    /* of an iteration; 0: these cards stay as they are */
    double mfu;       /* 0..1, of the iteration as it is */
} lh_report_what_if;

/* Copies all of it. In a build without the tools for WebAssembly the page says
 * how to get them instead.
 * LH_EINVAL: a number of a plan is negative or far too large.
 * LH_EUNSUPPORTED: what the page cannot simulate: delegated messages, host
 * memory. */
LH_API lh_status lh_report_set_what_if(lh_report *report,
                                       const lh_report_what_if *what_if,
                                       lh_error *err);

/* The report as one HTML file that loads nothing from anywhere. Release *text
 * with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_report_format_html(const lh_report *report, char **text,
                                       size_t *len, lh_error *err);

/* --- pictures without a browser ----------------------------------------- */

typedef struct lh_svg_options {
    size_t size;                        /* sizeof(lh_svg_options) */
    uint32_t width;                     /* in pixels; 0: 1200 */
    const lh_report_analysis *analysis; /* outlines the critical path; NULL */
} lh_svg_options;

/* The timeline as SVG. What is narrower than half a pixel is drawn merged with
 * its neighbours. `options` may be NULL. Release *text with lh_text_free(). */
LH_API lh_status lh_report_svg(const lh_trace *trace,
                               const lh_svg_options *options, char **text,
                               size_t *len, lh_error *err);

/* The same of a course; `options`: no analysis. */
LH_API lh_status lh_report_course_svg(const lh_report_course *course,
                                      const lh_svg_options *options,
                                      char **text, size_t *len, lh_error *err);

typedef struct lh_terminal_options {
    size_t size;    /* sizeof(lh_terminal_options) */
    uint32_t width; /* in columns, 40..1000; 0: 80 */
    bool color;     /* ANSI colours */
    bool ascii;     /* no characters beyond ASCII */
} lh_terminal_options;

/* The timeline as text, a row per device, no line longer than the width.
 * `options` may be NULL. Release *text with lh_text_free(). */
LH_API lh_status lh_report_terminal(const lh_trace *trace,
                                    const lh_terminal_options *options,
                                    char **text, size_t *len, lh_error *err);
/* The curves of a sweep as text. */
LH_API lh_status lh_report_terminal_plot(const lh_report_sweep *sweep,
                                         const lh_terminal_options *options,
                                         char **text, size_t *len,
                                         lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
