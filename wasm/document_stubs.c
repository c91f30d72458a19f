/* SPDX-License-Identifier: Apache-2.0 */
/* Stub without YAML: no pipeline in the page comes from a document, so error
 * locations in documents are never requested. */
#include "format/document/tree.h"

#include <stdarg.h>
#include <stdio.h>

lh_status lhi_doc_fail(const lhi_doc *doc, const lhi_node *node, lh_error *err,
                       lh_status status, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;
    (void)doc;
    (void)node;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lhi_fail(err, status, "%s", text);
}
