/* SPDX-License-Identifier: Apache-2.0 */
#include "report/whatif/whatif.h"

#include "base/arena.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/scheduler.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Capacity for a link's name in bytes; maximum capacity of a send queue in
 * messages. */
enum { NAME_SIZE = 256, MAX_QUEUE = 1 << 20 };

/* Keys in a line with changes. */
typedef enum change_key {
#define CHANGE_ENUM(id, key, of, about) CHANGE_##id,
    LHI_WHATIF_CHANGE_LIST(CHANGE_ENUM)
#undef CHANGE_ENUM
        N_CHANGES
} change_key;

static const struct {
    const char *key, *of;
} keys[] = {
#define CHANGE_ROW(id, key, of, about) {key, of},
    LHI_WHATIF_CHANGE_LIST(CHANGE_ROW)
#undef CHANGE_ROW
};

/* State while a line's changes are applied. */
typedef struct change_state {
    const lh_pipeline *from;
    lh_pipeline_desc desc; /* for the new pipeline; owned arrays follow */
    lh_chunk *chunks;
    lh_link *links;
    int64_t *limits;
    lhi_whatif_pipeline *to;
    const char *item; /* for error messages */
    int item_len;
} change_state;

/* Fails with LH_EINPUT and the current item ("key=value") in the message. */
static lh_status fail_item(const change_state *c, lh_error *err,
                           const char *why)
{
    return lhi_fail(err, LH_EINPUT, "%.*s: %s",
                    c->item_len > 80 ? 80 : c->item_len, c->item, why);
}

/* --- values --------------------------------------------------------------- */

/* Parses decimal digits with an optional point into *out and advances *text.
 * False if there are more than 15 digits: up to 15, every machine finds the
 * same double. */
static bool read_decimal(const char **text, double *out)
{
    double value = 0, scale = 1;
    int digits = 0;
    bool point = false;
    const char *p = *text;
    for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        value = value * 10 + (*p - '0');
        scale *= point ? 10 : 1;
        if (++digits > 15)
            return false;
    }
    if (digits == 0)
        return false;
    *out = value / scale;
    *text = p;
    return true;
}

/* Parses a factor, as in "x0.5"; false if the text is anything else. */
static bool read_factor(const char *text, double *out)
{
    if (*text++ != 'x' || !read_decimal(&text, out) || *text)
        return false;
    return *out >= 1e-6 && *out <= 1e6;
}

/* Parses a time, as in "20ms"; 0 needs no unit. False if the text is anything
 * else. */
static bool read_time(const char *text, int64_t *out_ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    double value;
    if (!read_decimal(&text, &value))
        return false;
    *out_ns = 0;
    if (value == 0 && !*text)
        return true;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text, units[i].name) == 0 && value * units[i].ns < 1e18) {
            *out_ns = llround(value * units[i].ns);
            return true;
        }
    return false;
}

/* Parses an integer from 0 to `most`; false if the text is anything else. */
static bool read_count(const char *text, uint32_t most, uint32_t *out)
{
    double value;
    if (!read_decimal(&text, &value) || *text || value > most ||
        value != floor(value))
        return false;
    *out = (uint32_t)value;
    return true;
}

/* Returns value * factor, rounded; saturates at INT64_MAX. */
static int64_t multiply(int64_t value, double factor)
{
    double product = (double)value * factor;
    return product < 9e18 ? (int64_t)llround(product) : INT64_MAX;
}

/* --- changes -------------------------------------------------------------- */

/* Changes latency or bandwidth (`key`) of the link named `of`, or of all links
 * between datacenters if `of` is "", by the factor `value`; a latency may also
 * be set to a time. */
static lh_status change_links(change_state *c, change_key key, const char *of,
                              const char *value, lh_error *err)
{
    double factor = 1;
    int64_t latency_ns = -1;
    uint32_t only = *of ? lhi_resource_find(c->from, of) : LH_NONE;
    if (*of && only == LH_NONE)
        return fail_item(c, err, "the pipeline has no link of that name");
    if (!read_factor(value, &factor) &&
        (key != CHANGE_LATENCY || !read_time(value, &latency_ns)))
        return fail_item(
            c, err,
            key == CHANGE_LATENCY
                ? "is neither a factor, such as x2, nor a time, such as 20ms"
                : "is not a factor, such as x0.5");
    for (uint32_t i = 0; i < c->desc.n_links; i++) {
        const lh_link *was = lh_pipeline_link(c->from, i);
        if (only == LH_NONE ? !lhi_link_is_inter_site(c->from, was)
                            : c->from->link_resources[i] != only)
            continue;
        if (key == CHANGE_BANDWIDTH)
            c->links[i].transfer_ns = multiply(was->transfer_ns, 1 / factor);
        else
            c->links[i].latency_ns = latency_ns >= 0
                                         ? latency_ns
                                         : multiply(was->latency_ns, factor);
    }
    return LH_OK;
}

/* Changes the compute speed on device `of`, or on all devices if `of` is "", by
 * the factor `value`. */
static lh_status change_speed(change_state *c, const char *of,
                              const char *value, lh_error *err)
{
    double factor;
    uint32_t only = LH_NONE;
    if (*of && (!read_count(of, c->desc.n_devices, &only) ||
                only == c->desc.n_devices))
        return fail_item(c, err, "the pipeline has no such device");
    if (!read_factor(value, &factor))
        return fail_item(c, err, "is not a factor, such as x0.9");
    for (uint32_t i = 0; i < c->desc.n_chunks; i++) {
        const lh_chunk *was = lh_pipeline_chunk(c->from, i);
        if (only != LH_NONE && was->device != only)
            continue;
        c->chunks[i].f_ns = multiply(was->f_ns, 1 / factor);
        c->chunks[i].d_ns = multiply(was->d_ns, 1 / factor);
        c->chunks[i].w_ns = multiply(was->w_ns, 1 / factor);
    }
    return LH_OK;
}

/* Changes the memory limit of all devices to `value`: a factor ("x0.5"), a
 * number in the pipeline's unit, or none. */
static lh_status change_limit(change_state *c, const char *value, lh_error *err)
{
    double factor = 0, number = 0;
    const char *rest = value;
    bool none = strcmp(value, "none") == 0;
    bool given = !none && read_decimal(&rest, &number) && !*rest;
    if (!none && !given && !read_factor(value, &factor))
        return fail_item(c, err,
                         "is neither a factor, such as x0.8, nor a number in "
                         "the unit of the pipeline, nor none");
    if (factor > 0 && !c->from->has_limits)
        return fail_item(c, err, "the pipeline has no memory limit");
    for (uint32_t d = 0; d < c->desc.n_devices; d++)
        c->limits[d] =
            given ? (int64_t)llround(number)
                  : multiply(lh_pipeline_memory_limit(c->from, d), factor);
    c->desc.memory_limits = none ? NULL : c->limits;
    return LH_OK;
}

/* Changes the microbatch count to `value`; fails for pipelines whose
 * communication is planned for a fixed number. */
static lh_status change_microbatches(change_state *c, const char *value,
                                     lh_error *err)
{
    uint32_t n;
    if (!read_count(value, LH_MAX_MICROBATCHES, &n) || n == 0)
        return fail_item(c, err, "is not a number of microbatches");
    if (n != c->desc.n_microbatches && (c->desc.n_dp_ops || c->desc.n_enqueue))
        return fail_item(c, err,
                         "the communication of this pipeline is planned for "
                         "its own number of microbatches");
    c->desc.n_microbatches = n;
    return LH_OK;
}

/* Changes the scheduling method to `value`; "as-is" keeps the present
 * schedule. */
static lh_status change_schedule(change_state *c, const char *value,
                                 lh_error *err)
{
    bool as_is = strcmp(value, "as-is") == 0;
    if (!as_is)
        LHI_TRY(lh_scheduler_check_name(value, err));
    lhi_text_copy(c->to->method, sizeof c->to->method, as_is ? "" : value);
    return LH_OK;
}

/* Changes when receives are posted to `value`: early or late. */
static lh_status change_receives(change_state *c, const char *value,
                                 lh_error *err)
{
    for (int r = LH_RECEIVES_EARLY; r <= LH_RECEIVES_LATE_FD; r++)
        if (strcmp(value, lh_receives_name((lh_receives)r)) == 0) {
            c->to->sim_options.receives = (lh_receives)r;
            c->to->sim_options.override_receives = true;
            return LH_OK;
        }
    return fail_item(c, err, "is not one of early, late, late-fd");
}

/* Applies one change `key` to `value`; `of` names a link or device, "" for
 * all. */
static lh_status apply_change(change_state *c, change_key key, const char *of,
                              const char *value, lh_error *err)
{
    switch (key) {
    case CHANGE_LATENCY:
    case CHANGE_BANDWIDTH:
        return change_links(c, key, of, value, err);
    case CHANGE_SPEED:
        return change_speed(c, of, value, err);
    case CHANGE_MICROBATCHES:
        return change_microbatches(c, value, err);
    case CHANGE_LIMIT:
        return change_limit(c, value, err);
    case CHANGE_RECEIVES:
        return change_receives(c, value, err);
    case CHANGE_COUPLED:
        if (!read_count(value, MAX_QUEUE, &c->to->sim_options.coupled_queue))
            return fail_item(c, err, "is not a number of messages");
        return LH_OK;
    case CHANGE_SCHEDULE:
        return change_schedule(c, value, err);
    case N_CHANGES:
        break;
    }
    return fail_item(c, err, "unknown change");
}

/* --- line ----------------------------------------------------------------- */

/* Returns a hexadecimal digit's value; -1 for any other character. */
static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) % 16 : -1;
}

/* Decodes a URL-encoded item, "%20" to " ", into `to`; false if it is too long
 * or malformed. */
static bool decode(const char *from, size_t len, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int high = -1, low = -1;
        if (from[i] == '%' && i + 2 < len) {
            high = hex_digit(from[i + 1]);
            low = hex_digit(from[i + 2]);
        }
        if (from[i] == '%' && (low < 0 || high < 0))
            return false;
        if (n + 1 >= NAME_SIZE)
            return false;
        to[n++] = high < 0 ? from[i] : (char)(high * 16 + low);
        i += high < 0 ? 0 : 2;
    }
    to[n] = '\0';
    return strlen(to) == n;
}

/* Decodes, parses and applies one item of the line of changes, "key=value" or
 * "key.name=value". */
static lh_status read_item(change_state *c, lh_error *err)
{
    char text[NAME_SIZE];
    if (!decode(c->item, (size_t)c->item_len, text))
        return fail_item(c, err, "is too long, or not URL-encoded");
    /* A link's name may contain any character except the last '='. */
    char *value = strrchr(text, '='), *of = strchr(text, '.');
    if (!value)
        return fail_item(c, err, "is not a change, such as latency=x2");
    *value++ = '\0';
    if (of && of < value - 1)
        *of++ = '\0';
    else
        of = value - 1; /* the key's end: "" */
    for (int k = 0; k < N_CHANGES; k++)
        if (strcmp(text, keys[k].key) == 0 && (!*of || *keys[k].of))
            return apply_change(c, (change_key)k, of, value, err);
    return fail_item(c, err,
                     "unknown change; known: latency, bandwidth, speed, "
                     "microbatches, limit, receives, coupled, schedule");
}

/* Applies all items of a line of changes, which are separated by "&". */
static lh_status read_line(change_state *c, const char *line, lh_error *err)
{
    for (const char *p = line; *p;) {
        size_t len = strcspn(p, "&");
        c->item = p;
        c->item_len = len < NAME_SIZE * 3 ? (int)len : NAME_SIZE * 3;
        if (len)
            LHI_TRY(read_item(c, err));
        p += len + (p[len] == '&');
    }
    return LH_OK;
}

/* Fills c->desc, the changed pipeline's description, from the original
 * pipeline, with copies of the chunks, links and limits that changes may
 * modify. */
static lh_status describe(change_state *c, lhi_arena *mem, lh_error *err)
{
    lh_pipeline_desc *d = &c->desc;
    d->size = sizeof *d;
    LHI_TRY(lh_pipeline_describe(c->from, d, err));
    c->chunks = LHI_NEW(mem, lh_chunk, d->n_chunks);
    c->links = LHI_NEW(mem, lh_link, d->n_links + (size_t)1);
    c->limits = LHI_NEW(mem, int64_t, d->n_devices);
    if (!c->chunks || !c->links || !c->limits)
        return lhi_fail_nomem(err);
    memcpy(c->chunks, d->chunks, d->n_chunks * sizeof *c->chunks);
    if (d->n_links)
        memcpy(c->links, d->links, d->n_links * sizeof *c->links);
    d->chunks = c->chunks;
    d->links = c->links;
    return LH_OK;
}

lh_status lhi_whatif_apply_changes(const lh_pipeline *pipeline,
                                   const lh_sim_options *sim, const char *line,
                                   lhi_whatif_pipeline *out, lh_error *err)
{
    lhi_whatif_pipeline made = {.sim_options = *sim};
    change_state c = {.from = pipeline, .to = &made};
    lhi_arena *mem = lhi_arena_make(0);
    lh_status status = mem ? describe(&c, mem, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = read_line(&c, line, err);
    if (status == LH_OK)
        status = lh_pipeline_make(&c.desc, &made.pipeline, err);
    lhi_arena_free(mem);
    if (status == LH_OK)
        *out = made;
    return status;
}

void lhi_whatif_pipeline_fini(lhi_whatif_pipeline *changed)
{
    lh_pipeline_free(changed->pipeline);
    changed->pipeline = NULL;
}
