/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON object too large to be held, value by value: the values of its keys,
 * and of one key, which is a list, the items. */
#ifndef LHI_JSON_ITEMS_H
#define LHI_JSON_ITEMS_H

#include "base/text.h"
#include "diagnose/unzip.h"

#include <stdint.h>

enum {
    LHI_ITEM_BYTES = 16 << 20
}; /* of a value: a longer one is passed over */

typedef struct lhi_json_items {
    lhi_unzip *zip;
    const char *name;    /* of the input, for messages */
    const char *list;    /* the key whose items come one by one */
    char bytes[1 << 16]; /* as they come */
    size_t at, n;        /* of `bytes` */
    uint64_t read;       /* bytes before `bytes` */
    lhi_text key, value; /* of the last one; value.data is its text */
    bool is_item, too_long;
    bool began, in_list, had_list, at_end;
    const char *why; /* the text ends early or is no JSON; NULL: it is whole */
} lhi_json_items;

/* Zeroed, with `zip`, `name` and `list` set: *more says whether there is a
 * value, in items->value; items->why why there are no more. */
lh_status lhi_json_items_next(lhi_json_items *items, bool *more, lh_error *err);
void lhi_json_items_fini(lhi_json_items *items);

#endif
