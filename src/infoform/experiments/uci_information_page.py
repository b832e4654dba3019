def page(r):
    return ""
