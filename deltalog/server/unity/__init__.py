"""The API of Unity Catalog: requests, responses and errors. ``deltalog.transactions.unity`` does the work.

Spec: UC Delta API 1.0 (api/delta.yaml), and the parts of api/all.yaml that its clients need.
"""
