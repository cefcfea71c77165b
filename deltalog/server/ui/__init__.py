"""The pages on which people look at the tables of the catalog in a browser. They change nothing, and need no script.

Every page is a call with a rule, like the calls of the APIs. All text is escaped, and the content security policy
permits no script, except on the timeline page, which permits its own.
"""
