"""Problems with operands, for gates, benchmarks and tests: one module per operator, one `Trial` per problem.

A trial owns its operands at fixed addresses and changes them in place, so that a captured graph meets the changes.
"""
