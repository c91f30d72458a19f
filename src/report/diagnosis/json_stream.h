/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming reader for a JSON object too large for memory. It returns the
 * values of the object's keys one by one; one key's value, a list, is returned
 * item by item. */
#ifndef LHI_REPORT_DIAGNOSIS_JSON_STREAM_H
#define LHI_REPORT_DIAGNOSIS_JSON_STREAM_H

#include "base/text.h"
#include "report/diagnosis/gzip_stream.h"

#include <stdint.h>

enum {
    LHI_JSON_STREAM_MAX_VALUE = 16 << 20
}; /* bytes per value; longer ones are skipped */

/* Streaming reader state. */
typedef struct lhi_json_stream {
    lhi_gzip_stream *zip;
    const char *name;         /* input name, for error messages */
    const char *list_key;     /* key of the list that is read item by item */
    char bytes[1 << 16];      /* input buffer */
    size_t position, n_bytes; /* read position and end in `bytes` */
    uint64_t n_consumed;      /* input bytes before `bytes` */
    lhi_text key, value;      /* last ones read; value.data is raw JSON text */
    bool is_item, too_long;
    bool began, in_list, had_list, at_end;
    const char *reason; /* why JSON is truncated or invalid; NULL: valid */
} lhi_json_stream;

/* Reads the next value of a large JSON object into items->value: each top-level
 * value, but each item of the list under key items->list by itself. *more:
 * false at the end; items->reason then holds the reason if the text is invalid.
 * Before the first call, `items` is zero but for `zip`, `name` and `list`. */
lh_status lhi_json_stream_next(lhi_json_stream *items, bool *more,
                               lh_error *err);
/* Frees a JSON stream's buffers. */
void lhi_json_stream_fini(lhi_json_stream *items);

#endif
